// Package version says which build of offsetproxy this is.
//
// A release build sets the number with
//
//	-ldflags "-X github.com/offsetproxy/offsetproxy/internal/version.number=1.2.3"
//
// every other build tells what the Go tool chain recorded about it. The package
// knows nothing of protocol or configuration versions.
package version
