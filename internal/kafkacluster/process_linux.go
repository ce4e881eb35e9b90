package kafkacluster

import "syscall"

// DieWithParent is for exec.Cmd.SysProcAttr: the kernel kills the process when
// the thread that started it ends, so at the latest when this program does. A
// group of its own keeps a terminal's Ctrl-C for the program, which then stops
// the cluster in order.
func DieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
