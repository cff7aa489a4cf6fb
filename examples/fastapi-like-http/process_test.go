//go:build unix

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is the program in a process of its own.
type process struct {
	cmd   *exec.Cmd
	lines chan string // of standard output

	mu  sync.Mutex
	log bytes.Buffer // standard error
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(text)
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// start starts the program in an empty directory; it is killed after the test.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self, args...), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), envMain+"=1")
	p.cmd.Dir = t.TempDir()
	p.cmd.Stderr = p
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("log of %q:\n%s", args, p.logged())
		}
	})
	return p
}

// awaitStarted waits for the line of the log that says so.
func (p *process) awaitStarted(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		if !strings.Contains(p.logged(), "msg=started") {
			return "not started:\n" + p.logged()
		}
		return ""
	})
}

// curlLines reads the three lines that a serving process prints, and the address
// of the dashboard.
func (p *process) curlLines(t *testing.T) []string {
	t.Helper()
	var lines []string
	for len(lines) < 4 {
		select {
		case line, ok := <-p.lines:
			if !ok {
				t.Fatalf("ended after %q:\n%s", lines, p.logged())
			}
			lines = append(lines, line)
		case <-time.After(30 * time.Second):
			t.Fatalf("only %q:\n%s", lines, p.logged())
		}
	}
	if !strings.HasPrefix(lines[3], "dashboard: http://") {
		t.Errorf("the fourth line is %q", lines[3])
	}
	return lines[:3]
}

// terminate sends SIGTERM and wants a clean end soon, with no further output.
func (p *process) terminate(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.awaitStopped(t)
}

// awaitStopped is the rest of terminate.
func (p *process) awaitStopped(t *testing.T) {
	t.Helper()
	began := time.Now()
	for line := range p.lines {
		t.Errorf("more output: %s", line)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("stopped after %v", took)
	}
	if !strings.Contains(p.logged(), "msg=stopped") {
		t.Errorf("it did not stop by itself:\n%s", p.logged())
	}
}

var webhookURL = regexp.MustCompile(`http://[^ ]+/webhooks/pix`)

// baseURL finds where the API is in its curl lines.
func baseURL(t *testing.T, lines []string) string {
	t.Helper()
	url := webhookURL.FindString(lines[0])
	if url == "" {
		t.Fatalf("no URL in %q", lines[0])
	}
	return strings.TrimSuffix(url, "/webhooks/pix")
}

func TestTheThreeCurlLinesWorkAsTheyStand(t *testing.T) {
	t.Parallel()
	p := start(t, "-addr", "127.0.0.1:0")
	lines := p.curlLines(t)
	want := []string{
		`"accepted":1`,
		`"chave":"ana@example.com"`,
		`"dead":0`,
	}
	for i, line := range lines {
		if got := runCurl(t, line); !strings.Contains(got, want[i]) {
			t.Errorf("%s\nanswers %s", line, got)
		}
	}
	// The first one once more is a repeat, and credited once.
	if got := runCurl(t, lines[0]); !strings.Contains(got, `"duplicates":1`) {
		t.Errorf("repeated: %s", got)
	}
	eventually(t, func() string {
		if got := runCurl(t, lines[1]); !strings.Contains(got, `"balance":"110.00","credits":1`) {
			return got
		}
		return ""
	})
	p.terminate(t)
	if _, err := os.Stat(filepath.Join(p.cmd.Dir, "letterbox-example.db")); err != nil {
		t.Error(err)
	}
}

var curlLine = regexp.MustCompile(`^curl (?:-X (POST) -H '([^:']+): ([^']+)' -d '([^']+)' )?(http://[^ ']+)$`)

// runCurl runs the line in a shell, or does the same where there is no curl.
func runCurl(t *testing.T, line string) string {
	t.Helper()
	m := curlLine.FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("not a line for curl: %q", line)
	}
	if _, err := exec.LookPath("curl"); err == nil {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "curl() { command curl --fail --silent --show-error \"$@\"; }\n"+line).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	method := m[1]
	if method == "" {
		method = http.MethodGet
	}
	got := do(t, method, m[5], m[3], m[4])
	if got.status/100 != 2 {
		t.Fatalf("%s: %d %s", line, got.status, got.body)
	}
	return got.body
}

func TestSIGTERMLetsARunningRequestFinish(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		p := start(t, "-addr", "127.0.0.1:0", "-dsn", dsn)
		url := baseURL(t, p.curlLines(t))
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		text := body(pix(idA, "1.00"))
		fmt.Fprintf(conn, "POST /webhooks/pix HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", len(text))
		reader := bufio.NewReader(conn)
		// The server says so once the handler reads: the request is running.
		if line, err := reader.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
			t.Fatalf("%q, %v", line, err)
		}
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			probe, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err == nil {
				probe.Close()
				return "it still takes connections"
			}
			return ""
		})
		io.WriteString(conn, text)
		answer, err := io.ReadAll(reader)
		if err != nil || !strings.Contains(string(answer), "HTTP/1.1 202") {
			t.Errorf("%q, %v", answer, err)
		}
		p.awaitStopped(t)
		if n := stored(t, openApp(t, dsn)); n != 1 {
			t.Errorf("%d rows, want 1", n)
		}
	})
}

func TestARequestThatNeverEndsDoesNotKeepTheProgramFromStopping(t *testing.T) {
	t.Parallel()
	p := start(t, "-addr", "127.0.0.1:0")
	url := baseURL(t, p.curlLines(t))
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /webhooks/pix HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("%q, %v", line, err)
	}
	p.terminate(t)
}

func TestTheAPIStoresAndTheWorkerProcesses(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, dsn string) {
		api := start(t, "-role", "api", "-addr", "127.0.0.1:0", "-dsn", dsn)
		url := baseURL(t, api.curlLines(t))
		wantReceipt(t, post(t, url, body(pix(idA, "1.00"), pix(idB, "2.00"))), receipt{Received: 2, Accepted: 2})

		readStats := func() (s stats) {
			if err := json.Unmarshal([]byte(do(t, http.MethodGet, url+"/inbox/stats", "", "").body), &s); err != nil {
				t.Fatal(err)
			}
			return s
		}
		// A processor in this process would have been woken by the commit.
		deadline := time.Now().Add(1500 * time.Millisecond)
		for time.Now().Before(deadline) {
			if s := readStats(); s.Pending != 2 || s.Processed != 0 {
				t.Fatalf("without a worker: %+v", s)
			}
			time.Sleep(50 * time.Millisecond)
		}
		worker := start(t, "-role", "worker", "-dsn", dsn)
		worker.awaitStarted(t)
		eventually(t, func() string {
			if s := readStats(); s.Processed != 2 {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		})
		// Both at work: what is accepted from now on, the worker finds.
		wantReceipt(t, post(t, url, body(pix(idC, "3.00"), pix(idA, "1.00"))), receipt{Received: 2, Accepted: 1, Duplicates: 1})
		eventually(t, func() string {
			if got := do(t, http.MethodGet, url+"/accounts/ana@example.com", "", "").body; !strings.Contains(got, `"balance":"6.00","credits":3`) {
				return got
			}
			return ""
		})
		worker.terminate(t) // it printed nothing
		api.terminate(t)
	})
}

func TestAnAddressThatIsTakenIsExplained(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	p := start(t, "-addr", listener.Addr().String())
	for line := range p.lines {
		t.Errorf("output: %s", line)
	}
	err = p.cmd.Wait()
	if p.cmd.ProcessState.ExitCode() != 1 || !strings.Contains(p.logged(), "choose another address") {
		t.Errorf("%v\n%s", err, p.logged())
	}
}

func TestTheDemoExitsWithItsVerdict(t *testing.T) {
	t.Parallel()
	p := start(t, "-demo")
	last := ""
	for line := range p.lines {
		last = line
	}
	if err := p.cmd.Wait(); err != nil || !lastLine(t, last).OK {
		t.Errorf("%v, %s", err, last)
	}
	if left, err := os.ReadDir(p.cmd.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-role", "both"},
		{"-dsn", "mysql://host/name"},
		{"-dsn", "postgres://%zz"},
		{"-addr", "nowhere"},
		{"-demo", "-dsn", "mysql://host/name"},
		{"-nope"},
		{"demo"},
	} {
		var stdout bytes.Buffer
		t.Chdir(t.TempDir())
		if err := run(t.Context(), args, &stdout, io.Discard); err == nil || stdout.Len() > 0 {
			t.Errorf("%q: %v, output %q", args, err, stdout.String())
		}
	}
}
