//go:build unix

package testdb

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// watchdogScript waits for a line on its input, which says that there is nothing
// left to do, or for the end of it: then it ends the server and removes the
// directory $1. It leads a process group of its own, which initdb and the
// postmaster join, so it has to know no process ids: SIGQUIT is an immediate
// shutdown for the postmaster, whose lock file is gone when it is done. A
// terminal's signals, such as Ctrl-C, do not reach the group.
//
// Whoever was killed leaves a segment of System V shared memory, named in the
// seventh line of the lock file (which an initdb that is told to quit removes, but
// not the segment). The directory is looked at twice, since a process
// that has only just been started may write into it after the first time; the last
// line ends what is left of the group, the shell included.
const watchdogScript = `
trap '' HUP INT QUIT TERM
read -r _ && exit
pause() { sleep 0.1 || sleep 1; }
lock=$1/data/postmaster.pid
memory=$(sed -n 7p "$lock")
kill -QUIT 0
n=0
pause
while [ $n -lt 100 ] && read -r pid _ <"$lock" && kill -0 "$pid"; do
	pause
	n=$((n + 1))
done
[ ! -e "$lock" ] || memory=$(sed -n 7p "$lock")
[ -z "$memory" ] || ipcrm -m "${memory##* }"
n=0
while [ $n -lt 20 ]; do
	rm -rf "$1"
	pause
	[ -e "$1" ] || break
	n=$((n + 1))
done
kill -KILL 0
`

// watchdog is a process that outlives this one by a moment, see watchdogScript.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
	done chan struct{} // closed when the process has ended
}

// startWatchdog starts a watchdog for what happens in dir.
func startWatchdog(dir string) (*watchdog, error) {
	// Its output goes nowhere: go test waits for everybody who holds its own.
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "testdb-watchdog", dir)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin:" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// No child of this process inherits this end of the pipe.
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start watchdog: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start watchdog: %w", err)
	}
	dog := &watchdog{cmd: cmd, pipe: pipe, done: make(chan struct{})}
	// This goroutine also keeps the pipe from being closed by the garbage collector
	// when a program drops the server but goes on using it.
	go func() {
		defer close(dog.done)
		cmd.Wait() // it kills itself in the end
	}()
	return dog, nil
}

// group returns the process group that the watchdog ends.
func (w *watchdog) group() int { return w.cmd.Process.Pid }

// dismiss ends the watchdog, since all is cleaned up.
func (w *watchdog) dismiss() {
	io.WriteString(w.pipe, "\n") // an error means that it has ended
	w.alarm()
}

// alarm has the watchdog clean up now, and waits for it.
func (w *watchdog) alarm() {
	w.pipe.Close() // an error means that it is closed already
	<-w.done
}
