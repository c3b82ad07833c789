package proc

import (
	"os"
	"strings"
)

// place names where the process ids that this process sees count: this start of the machine, and
// this process's PID namespace.
func place() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	namespace, _ := os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(boot)) + "/" + namespace
}
