package proc

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// guardScript reads which process groups begin and end. When its input ends, this process has
// ended, and it kills the groups that are left.
const guardScript = `trap "" HUP INT TERM
groups=" "
while read -r what group; do
	case $what in
	begin) groups="$groups$group " ;;
	end) groups="${groups%%" $group "*} ${groups#*" $group "}" ;;
	esac
done
for group in $groups; do kill -s KILL -- "-$group"; done 2>/dev/null
`

// guard is one small process that outlives this one for a moment. The kernel does not tell a group
// that a process has ended: after SIGKILL only the children would end with this process, and not
// the children's children.
type guard struct {
	once sync.Once

	mu sync.Mutex // guards the field that follows
	in *os.File   // its input; nil: it could not be started
}

var groups guard

// start starts the guard's process, once. Call it before the first process of a group runs.
func (g *guard) start() {
	g.once.Do(func() {
		r, w, err := os.Pipe()
		if err != nil {
			return
		}
		defer r.Close()
		cmd := exec.Command("/bin/sh", "-c", guardScript)
		cmd.Dir, cmd.Env, cmd.Stdin = "/", []string{}, r
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for it
		if cmd.Start() != nil {
			_ = w.Close()
			return
		}
		_ = cmd.Process.Release()
		g.mu.Lock()
		g.in = w
		g.mu.Unlock()
	})
}

// begin makes a group end with this process.
func (g *guard) begin(group int) { g.tell("begin", group) }

// end takes a group off that has ended.
func (g *guard) end(group int) { g.tell("end", group) }

func (g *guard) tell(what string, group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.in != nil {
		_, _ = fmt.Fprintf(g.in, "%s %d\n", what, group)
	}
}
