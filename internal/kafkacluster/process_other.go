//go:build unix && !linux

package kafkacluster

import "syscall"

// dieWithParent has no kernel support here: a program that crashes leaves its
// brokers running.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
