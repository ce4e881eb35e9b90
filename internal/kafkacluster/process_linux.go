package kafkacluster

import "syscall"

// dieWithParent makes the kernel kill the process when this program ends. A
// group of its own keeps a terminal's Ctrl-C for the program, which then stops
// the cluster in order.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
