// Package check holds the tests of the manifests around it. They are rendered as
// `kubectl apply -k` renders them, decoded so that an unknown field is an error, defaulted
// and validated by the code of Kubernetes' API server, held against its Pod Security
// standard "restricted", and their parts against each other: ports, names, mounts and
// times. It needs no cluster, and says nothing of what network plugins and load balancers
// make of them.
//
// It is a module of its own, because Kubernetes' code is large and no part of the program.
package check
