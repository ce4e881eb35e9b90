// Package architecture holds no code, only tests of how the code is laid out:
// which package may import which, which may do no I/O, and how long a file may
// grow. The rules stand as tables in the tests, and CONTRIBUTING.md says why.
package architecture
