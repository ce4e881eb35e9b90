// Package check holds the tests of the manifests around it. They are rendered as
// `kubectl apply -k` renders them, decoded so that an unknown field is an error, defaulted
// and validated by the code of Kubernetes' API server, held against its Pod Security
// standard "restricted", and their parts against each other: ports, names, mounts and
// times. The Dockerfile is read by BuildKit's own parser. All this needs no cluster and no
// engine, and says nothing of what network plugins and load balancers make of it.
//
// It is a module of its own, because their code is large and no part of the program.
package check
