// Package check holds the alerts against Prometheus' own parsers. It is a module of its
// own, to keep them out of the program's.
package check
