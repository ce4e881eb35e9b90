//go:build unix && !linux

package kafkacluster

import "syscall"

// DieWithParent is for exec.Cmd.SysProcAttr. The kernel gives no help here: a program that crashes leaves its
// brokers running.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
