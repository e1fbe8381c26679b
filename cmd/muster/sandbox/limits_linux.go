package sandbox

import (
	"fmt"
	"os/exec"
	"syscall"
)

// slack is what the operating system's limit leaves beside the watched heap:
// stacks, and what Go keeps for its own use.
const slack = 1 << 30

// restrict sets the operating system's limits of this process.
func restrict(memory int64, cpuSeconds uint64) error {
	if !raceEnabled { // the race detector maps far more than it uses
		data := syscall.Rlimit{Cur: uint64(memory) + slack, Max: uint64(memory) + slack}
		if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &data); err != nil {
			return fmt.Errorf("limit the memory: %w", err)
		}
	}
	cpu := syscall.Rlimit{Cur: cpuSeconds, Max: cpuSeconds + 1}
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &cpu); err != nil {
		return fmt.Errorf("limit the CPU time: %w", err)
	}
	return nil
}

// bind ends the child when its parent ends, however that ends.
func bind(child *exec.Cmd) {
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// overCPU tells a child that used up its CPU time from one that was killed.
func overCPU(exit *exec.ExitError, l Limits) bool {
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && (status.Signal() == syscall.SIGXCPU || exit.UserTime()+exit.SystemTime() >= l.CPU)
}
