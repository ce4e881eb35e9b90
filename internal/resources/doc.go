// Package resources compares what the settings of a proxy allow its clients to use up
// with what the system gives the process: file descriptors and memory. Its functions
// are pure but for Read, and say what to change in the words of the configuration file.
// What they come to is advice: nothing is limited here.
package resources
