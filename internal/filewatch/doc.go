// Package filewatch tells when the contents of files change, however they are
// replaced: written over, renamed into place, or reached through symbolic links of
// which one is swapped, as in Kubernetes' mounts of ConfigMaps and Secrets.
package filewatch
