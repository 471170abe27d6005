package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is how long the tests wait for what has to come.
const patience = time.Minute

var update = flag.Bool("update", false, "write the pictures in docs/images anew")

// host is a running Catena.
type host struct {
	t      *testing.T
	binary string
	dir    string
	// process is that of the host.
	process *os.Process
}

func startHost(t *testing.T) *host {
	t.Helper()
	bin := os.Getenv("CATENA_BIN")
	if bin == "" {
		t.Skip("CATENA_BIN names no directory with the binaries: make test-browser does that")
	}
	// The binaries and the data must be in directories that no other user can change.
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(home, ".catena-test-browser-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	h := &host{t: t, binary: filepath.Join(bin, "catena"), dir: dir}
	configuration := fmt.Sprintf("apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [%s]\nlog: {level: info}\n"+
		"apiserver: {secure-port: 0}\nstages:\n  aggregator: {delegate: core}\n  core: {delegate: extensions}\n  extensions: {}\n", filepath.Join(bin, "plugins"))
	if err := os.WriteFile(h.file("catena.yaml"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	var out output
	cmd := h.command("serve", "--config", h.file("catena.yaml"))
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.process = cmd.Process
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the host ended: %v\n%s", err, &out)
		}
	})
	eventually(t, "the host is ready", func() error {
		if !strings.Contains(out.String(), "ready after") {
			return errors.New(out.String())
		}
		return nil
	})
	return h
}

func (h *host) file(name string) string { return filepath.Join(h.dir, name) }

// command is catena with arguments, for the data directory of the host.
func (h *host) command(args ...string) *exec.Cmd {
	cmd := exec.Command(h.binary, append(args, "--data-dir", h.file("data"))...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.dir}
	cmd.Dir = h.dir
	return cmd
}

func (h *host) run(args ...string) string {
	h.t.Helper()
	out, err := h.command(args...).CombinedOutput()
	if err != nil {
		h.t.Fatalf("catena %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// ui runs catena ui and returns the address of its page.
func (h *host) ui() string {
	h.t.Helper()
	var out output
	cmd := h.command("ui", "--no-browser")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			h.t.Errorf("catena ui: %v\n%s", err, &out)
		}
	})
	eventually(h.t, "catena ui prints its address", func() error {
		if !strings.HasSuffix(out.String(), "/\n") {
			return errors.New(out.String())
		}
		return nil
	})
	return strings.TrimSpace(out.String())
}

// output can be read while a process writes it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("not so within %s: %s: %v", patience, what, err)
}

// tab is a page in Chromium. Whatever its console says is an error of the test.
type tab struct {
	t     *testing.T
	ctx   context.Context
	close context.CancelFunc
}

// startBrowser starts Chromium. Without it the test is skipped, unless the environment requires it.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		if strings.Contains(os.Getenv("CATENA_REQUIRE"), "chromium") {
			t.Fatal("there is no Chromium")
		}
		t.Skip("there is no Chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(patience),
		chromedp.Env("TMPDIR="+t.TempDir(), "HOME="+t.TempDir()))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(stop)
	ctx, closeBrowser := chromedp.NewContext(allocator)
	t.Cleanup(closeBrowser)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

func newTab(t *testing.T, browser context.Context) *tab {
	t.Helper()
	ctx, closeTab := chromedp.NewContext(browser)
	if err := chromedp.Do(ctx); err != nil { // without a deadline, which would be that of the tab
		t.Fatal(err)
	}
	p := &tab{t, ctx, closeTab}
	p.do("log", call(log.Enable, cdp.Empty{}), call(runtime.Enable, cdp.Empty{}))
	report(p, log.EntryAdded, func(e log.EventEntryAdded) string { return e.Entry.Text + " " + e.Entry.URL })
	report(p, runtime.ExceptionThrown, func(e runtime.EventExceptionThrown) string { return e.ExceptionDetails.Text })
	return p
}

// report makes each event of a page an error of its test.
func report[E any](p *tab, kind cdp.Event[E], text func(E) string) {
	events := chromedp.Events(p.ctx, kind)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range events {
			if err != nil {
				return
			}
			p.t.Errorf("the page reports: %s", text(e))
		}
	}()
	p.t.Cleanup(func() { p.close(); <-done })
}

// call is an action that is a command of the browser's protocol.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (p *tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// eval evaluates an expression of JavaScript.
func eval[T any](p *tab, expression string) (value T) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// execute evaluates statements of JavaScript.
func (p *tab) execute(statements string) {
	p.t.Helper()
	eval[bool](p, statements+"; true")
}

func (p *tab) text(selector string) string {
	p.t.Helper()
	return eval[string](p, fmt.Sprintf("document.querySelector(%q).textContent", selector))
}

// awaitText waits until an element contains a text.
func (p *tab) awaitText(selector, want string) {
	p.t.Helper()
	eventually(p.t, selector+" contains "+want, func() error {
		if got := p.text(selector); !strings.Contains(got, want) {
			return errors.New(got)
		}
		return nil
	})
}

// accessible checks the page by the rules of axe-core.
func (p *tab) accessible(axe string) {
	p.t.Helper()
	if axe == "" {
		return
	}
	p.execute(axe)
	type violation struct {
		ID, Help string
		Nodes    []struct{ HTML, FailureSummary string }
	}
	for _, v := range eval[[]violation](p, "axe.run().then((r) => r.violations)") {
		p.t.Errorf("%s: %s: %+v", v.ID, v.Help, v.Nodes)
	}
}

// loadAxe returns the source of axe-core, "" if it is not installed.
func loadAxe(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if errors.Is(err, fs.ErrNotExist) {
		if strings.Contains(os.Getenv("CATENA_REQUIRE"), "node") {
			t.Fatal(err)
		}
		t.Log("axe-core is not installed: its rules are not checked")
		return ""
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// picture keeps a picture of the page in docs/images, if the pictures are to be written.
func (p *tab) picture(name string) {
	p.t.Helper()
	if !*update {
		return
	}
	png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("..", "..", "docs", "images", name), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *tab) resize(width, height int64) {
	p.t.Helper()
	p.do("resize", chromedp.EmulateViewport(width, height))
}

func (p *tab) prefer(scheme string) {
	p.t.Helper()
	p.do("color scheme", call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
}

// What happens to the chain is seen to change the page, which nothing reloads.
func TestPageFollowsTheChain(t *testing.T) {
	browser := startBrowser(t)
	h, axe := startHost(t), loadAxe(t)
	address := h.ui()
	p := newTab(t, browser)
	p.resize(1100, 900)
	p.prefer("light")
	p.do("open the page", chromedp.Navigate(address))
	p.awaitText("#connection", "live")
	p.awaitText(".summary", "all stages serve")
	p.accessible(axe)
	p.execute(`document.querySelector("#stage-core").kept = true`)

	h.run("swap", "core")
	p.awaitText(".events", "core swapped")
	p.awaitText("#changes ~ div", "catena swap core")
	h.kill("extensions")
	p.awaitText(".events", "extensions restarted")
	h.run("swap", "extensions", "--probation", "10m")
	p.awaitText("#stage-extensions", "on probation")
	p.awaitText(".summary", "extensions is on probation for")
	p.accessible(axe)
	p.picture("dashboard.png")
	p.prefer("dark")
	p.accessible(axe)
	p.picture("dashboard-dark.png")
	p.prefer("light")
	h.run("swap", "extensions", "--rollback")
	p.awaitText(".events", "extensions reverted")
	h.run("reload")
	p.awaitText(".events", "configuration applied, nothing has changed")
	if !eval[bool](p, `document.querySelector("#stage-core").kept === true`) {
		t.Error("the page, or the part for the stage, was made anew")
	}
	p.awaitText("title", "Catena: all stages serve")
}

// A host that hangs, or has ended, cannot be taken for one that serves: not by the title of a tab in the background either. The page comes back with the host.
func TestPageOfAHostThatIsGone(t *testing.T) {
	browser := startBrowser(t)
	h, axe := startHost(t), loadAxe(t)
	address := h.ui()
	p := newTab(t, browser)
	p.do("open the page", chromedp.Navigate(address))
	p.awaitText("title", "Catena: all stages serve")
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := h.process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	gone := func() {
		t.Helper()
		p.awaitText("title", "Catena: no host")
		p.awaitText(".summary", "No word from the host for")
		if got := eval[string](p, `getComputedStyle(document.querySelector("#stage-core .state"), "::before").content`); got != `"was "` {
			t.Errorf("the card of core says %s before its state", got)
		}
	}
	signal(syscall.SIGSTOP)
	gone()
	p.accessible(axe)
	signal(syscall.SIGCONT)
	p.awaitText("title", "Catena: all stages serve")
	p.awaitText(".summary", "all stages serve")
	if eval[bool](p, `document.body.classList.contains("lost")`) {
		t.Error("the host is back, and the cards are those of one that is gone")
	}
	signal(syscall.SIGTERM)
	gone()
	p.awaitText("#connection", "no host runs on the data directory")
}

// What is typed, focused and unfolded stays while the page is updated, and all of it can be reached with the keyboard.
func TestPageKeepsWhatItsReaderDoes(t *testing.T) {
	browser := startBrowser(t)
	h := startHost(t)
	address := h.ui()
	p := newTab(t, browser)
	p.do("open the page", chromedp.Navigate(address))
	p.awaitText("#connection", "live")
	p.do("type", chromedp.Focus("#find"), chromedp.SendKeys("#find", "/apis/apps"))
	p.execute(`document.getElementById("all-checks").open = true`)
	before := p.text("#stage-core .about")
	eventually(t, "update", func() error {
		if p.text("#stage-core .about") == before {
			return errors.New("none yet")
		}
		return nil
	})
	if got := eval[string](p, `document.activeElement.id + " " + document.activeElement.value`); got != "find /apis/apps" {
		t.Errorf("the focus is at %q", got)
	}
	if !eval[bool](p, `document.getElementById("all-checks").open`) {
		t.Error("the list of checks was folded")
	}
	shown := eval[[]string](p, `[...document.querySelectorAll(".claims li")].filter((li) => !li.hidden).map((li) => li.textContent)`)
	if len(shown) == 0 || !strings.Contains(shown[0], "/apis/apps") {
		t.Errorf("found %q", shown)
	}
	p.execute(`document.activeElement.blur(); window.scrollTo(0, 0)`)
	reached := map[string]bool{}
	for range 40 {
		p.do("tab", chromedp.KeyEvent("\t"))
		reached[eval[string](p, `document.activeElement.id || document.activeElement.className || document.activeElement.localName`)] = true
	}
	for _, want := range []string{"skip", "method", "path", "find", "button", "summary"} {
		if !reached[want] {
			t.Errorf("the keyboard does not reach %s, but %v", want, reached)
		}
	}
}

// The page fits on a telephone.
func TestPageIsNarrow(t *testing.T) {
	browser := startBrowser(t)
	h, axe := startHost(t), loadAxe(t)
	address := h.ui()
	p := newTab(t, browser)
	p.resize(360, 740)
	p.do("open the page", chromedp.Navigate(address))
	p.awaitText("#connection", "live")
	if width := eval[int](p, "document.documentElement.scrollWidth"); width > 360 {
		t.Errorf("the page is %d pixels wide", width)
	}
	p.accessible(axe)
	p.picture("dashboard-narrow.png")
}

// Without JavaScript, the page shows the chain as it is when it is loaded, and its forms work.
func TestPageWithoutScript(t *testing.T) {
	browser := startBrowser(t)
	h := startHost(t)
	address := h.ui()
	p := newTab(t, browser)
	p.do("open the page", call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}), chromedp.Navigate(address))
	p.awaitText("#stage-core", "serving")
	p.awaitText("#connection", "as it was when it was loaded")
	p.do("explain a request", chromedp.SendKeys("#path", "/api/v1/pods"), chromedp.Submit("#path"), chromedp.WaitVisible("main table"))
	p.awaitText("main", "core responds, or passes it on; then 404.")
	p.do("find a claim", chromedp.SendKeys("#find", "/apis/apps"), chromedp.Submit("#find"), chromedp.WaitVisible("#claims-core[open]"))
	if got := p.text("#claims-core ul"); !strings.Contains(got, "/apis/apps") || strings.Contains(got, "/apis/batch") {
		t.Errorf("found %q", got)
	}
}

// Nothing is served without the token.
func TestPageIsForWhoHasTheToken(t *testing.T) {
	h := startHost(t)
	address := h.ui()
	base := address[:strings.LastIndex(strings.TrimSuffix(address, "/"), "/")]
	for _, path := range []string{"/", "/page.css", "/status", "/AAAAAAAAAAAAAAAAAAAAAAAAAA/"} {
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	resp, err := http.Get(address + "status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status struct{ Stages []struct{ Stage string } }
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil || len(status.Stages) != 3 {
		t.Errorf("%+v, %v", status, err)
	}
}

// kill kills the process of a stage.
func (h *host) kill(stage string) {
	h.t.Helper()
	var pid int
	if _, err := fmt.Sscan(h.run("status", stage, "-o", "pid"), &pid); err != nil {
		h.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		h.t.Fatal(err)
	}
}
