package livepage

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/chromedp/chromedp/kb"

	bergv1 "github.com/bergctf/berg-operator/api/berg/v1"
	"github.com/bergctf/berg-operator/test/conform/livepage/chrome"
	"github.com/bergctf/berg-operator/test/conform/livepage/wall"
)

// crew is what a test looks with: a page over a namespace of its own, and a tab of the browser.
type crew struct {
	*wall.Wall
	*chrome.Tab
	t testing.TB
}

func open(t *testing.T) crew {
	t.Helper()
	if os.Getenv("LIVE_PAGE") == "" {
		t.Skip("make test-live-page brings up a cluster, and runs this test with it")
	}
	ctx := context.WithoutCancel(t.Context()) // what is opened is closed after the test
	c := crew{t: t}
	var err error
	c.Wall, err = wall.Open(ctx, "live-page-")
	c.must(err)
	t.Cleanup(func() { c.must(c.Wall.Close(ctx)) })
	browser, err := chrome.New(ctx)
	c.must(err)
	t.Cleanup(browser.Close)
	c.Tab, err = browser.Open(c.Address, c.Authorization())
	c.must(err)
	t.Cleanup(func() {
		for _, wrong := range c.Wrong() {
			t.Error(wrong)
		}
		c.Tab.Close()
	})
	c.must(c.Challenge(ctx, "web", bergv1.PublicHTTPRoute))
	c.must(c.Challenge(ctx, "pwn", bergv1.PublicPort))
	return c
}

func (c crew) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// write creates or changes an instance of web.
func (c crew) write(name string, status bergv1.ChallengeInstanceStatus) *bergv1.ChallengeInstance {
	c.t.Helper()
	i, err := c.Write(c.t.Context(), name, "web", "team-"+name, status)
	c.must(err)
	return i
}

func (c crew) running(name string) *bergv1.ChallengeInstance {
	c.t.Helper()
	return c.write(name, wall.Running(name, 3*time.Second))
}

func (c crew) crashing(name string) *bergv1.ChallengeInstance {
	c.t.Helper()
	return c.write(name, crashing)
}

var crashing = wall.Waiting(bergv1.PhaseStarting, bergv1.CauseCrashing, bergv1.ConditionPodsReady, "container web ended with exit code 1")

// visit opens a path of the page, and waits until it is live.
func (c crew) visit(path string) {
	c.t.Helper()
	c.must(c.Go(c.Address + path))
	c.must(c.Until(`document.getElementById("connection").textContent === "live"`))
}

// row is an expression of the row of an instance, null if there is none.
func (c crew) row(name string) string {
	return fmt.Sprintf(`document.getElementById("row %s/%s")`, c.Namespace, name)
}

func TestThePageIsLive(t *testing.T) {
	c := open(t)
	c.running("first")
	c.visit("")
	c.must(c.Until(c.row("first") + " !== null"))
	if _, err := c.Text("window.sameAsBefore = true"); err != nil {
		t.Fatal(err)
	}

	c.running("second")
	c.must(c.Until(c.row("second") + ` !== null && document.querySelector("#others tr").id.endsWith("second")`))
	c.crashing("first")
	c.must(c.Until(`document.querySelector("#problems li").textContent.includes("exit code 1") && ` + c.row("first") + `.textContent.includes("exit code 1")`))
	c.must(c.Until(`document.getElementById("counts").textContent.includes("1 need a person")`))
	c.must(c.Until(`Array.from(document.querySelectorAll("#summary th")).some((e) => e.textContent === "web")`))
	c.must(c.Delete(t.Context(), "first"))
	c.must(c.Until(c.row("first") + ` === null`))
	c.must(c.Until("window.sameAsBefore === true")) // it was not loaded again
}

func TestFilterAndSearch(t *testing.T) {
	c := open(t)
	c.running("alpha")
	c.running("beta")
	c.crashing("gamma")
	c.visit("")
	c.must(c.Until(c.row("gamma") + " !== null"))
	if _, err := c.Text(`document.getElementById("q").focus()`); err != nil {
		t.Fatal(err)
	}
	c.must(c.Press("TEAM-alpha" + kb.Enter))
	c.must(c.Until(`window.location.search.includes("q=TEAM-alpha") && document.getElementById("connection").textContent === "live"`))
	c.must(c.Until(c.row("alpha") + " !== null && " + c.row("beta") + " === null && " + c.row("gamma") + " === null"))
	c.crashing("beta") // it does not match
	c.crashing("alpha")
	c.must(c.Until(c.row("alpha") + `.textContent.includes("exit code 1") && ` + c.row("beta") + " === null"))

	c.visit("?state=running")
	c.must(c.Until(c.row("alpha") + " === null"))
	c.running("alpha") // now it does
	c.must(c.Until(c.row("alpha") + " !== null"))
	c.crashing("alpha")
	c.must(c.Until(c.row("alpha") + " === null"))
	c.visit("?challenge=pwn")
	c.must(c.Until(c.row("beta") + ` === null && document.querySelector("#challenge").value === "pwn"`))
}

// Forty players behind one wrong image are one problem. Its instances are folded, and what a person unfolds stays unfolded while the
// page changes.
func TestManyInstancesAreOneProblem(t *testing.T) {
	c := open(t)
	for n := range 40 {
		c.write(fmt.Sprint("image-", n), wall.Waiting(bergv1.PhaseStarting, bergv1.CauseImageUnavailable, bergv1.ConditionPodsReady, "image shop:typo not found"))
	}
	c.crashing("bad")
	c.visit("")
	c.must(c.Until(`document.querySelectorAll("#problems > ul > li").length === 2 && document.querySelector("#problems li").textContent.includes("40 instances")`))
	c.must(c.Until(`document.querySelector("#problems details").open === false && document.querySelector("#problems code").textContent.includes("kubectl berg try web")`))
	c.must(c.Until(`document.getElementById("q").getBoundingClientRect().top < 400`))
	if _, err := c.Text(`document.querySelector("#problems summary").click()`); err != nil {
		t.Fatal(err)
	}
	c.must(c.Delete(t.Context(), "bad"))
	c.must(c.Until(`document.querySelectorAll("#problems > ul > li").length === 1 && document.querySelector("#problems details").open`))
	c.must(c.Size(390, 900))
	c.must(c.Until(`getComputedStyle(document.querySelector("#others td"), "::before").content === '"Instance: "'`))
}

func TestTheKeyboardAlone(t *testing.T) {
	c := open(t)
	c.running("one")
	c.visit("")
	focus := func(is string) {
		t.Helper()
		c.must(c.Until(`document.activeElement.` + is))
	}
	c.must(c.Press(kb.Tab))
	focus(`classList.contains("skip")`)
	c.must(c.Press(kb.Enter))
	c.must(c.Until(`window.location.hash === "#search"`))
	c.must(c.Press(kb.Tab))
	focus(`id === "q"`)
	for range 3 { // the challenge, the state, the button
		c.must(c.Press(kb.Tab))
	}
	focus(`tagName === "BUTTON"`)
	if _, err := c.Text(`document.querySelector("#others a").focus()`); err != nil {
		t.Fatal(err)
	}

	// What has the focus keeps it when its row is written again.
	c.crashing("one")
	c.must(c.Until(c.row("one") + `.textContent.includes("exit code 1")`))
	focus(`getAttribute("href") === "instances/one"`)
	c.must(c.Press(kb.Enter))
	c.must(c.Until(`window.location.pathname.endsWith("/instances/one")`))
	// Every line to copy can be reached, and is selected as a whole.
	c.must(c.Until(`Array.from(document.querySelectorAll("code")).every((e) => e.tabIndex === 0 && getComputedStyle(e).userSelect === "all")`))
}

func TestWithoutScriptsThePageLoadsItselfAgain(t *testing.T) {
	c := open(t)
	c.running("one")
	c.must(c.Scripts(false))
	c.must(c.Go(c.Address))
	c.must(c.Until(c.row("one") + ` !== null && document.getElementById("connection").textContent.startsWith("as of")`))
	c.crashing("one")
	c.must(c.Until(c.row("one") + `.textContent.includes("exit code 1")`))
	c.must(c.Go(c.Address + "?state=running"))
	c.must(c.Until(c.row("one") + " === null"))
}

func TestOneInstanceUntilItsEnd(t *testing.T) {
	c := open(t)
	ctx := t.Context()
	one := c.crashing("one")
	c.visit("instances/one")
	c.must(c.Until(`document.body.textContent.includes("kubectl berg logs one --previous -n ` + c.Namespace + `")`))
	c.must(c.Event(ctx, one, corev1.EventTypeWarning, "Crashing", "it ended again"))
	c.must(c.Until(`document.getElementById("instance-body").textContent.includes("it ended again")`))

	// What is selected to be copied stays selected while the page changes, and is written again afterwards.
	if _, err := c.Text(`(() => { const s = getSelection(); s.removeAllRanges(); s.selectAllChildren(document.querySelector("code")); })()`); err != nil {
		t.Fatal(err)
	}
	c.must(c.Event(ctx, one, corev1.EventTypeNormal, "Later", "while it is selected"))
	c.visitOther(`fetch(window.location.href).then((a) => a.text())`, "while it is selected")
	c.must(c.Until(`getSelection().toString().startsWith("kubectl berg ") && !document.body.textContent.includes("while it is selected")`))
	if _, err := c.Text(`getSelection().removeAllRanges()`); err != nil {
		t.Fatal(err)
	}
	c.must(c.Until(`document.body.textContent.includes("while it is selected")`))

	c.must(c.Record(ctx, one, "GET /?q=</pre><script>alert(1)</script>\nthe flag is <flag>\n"))
	c.must(c.Delete(ctx, "one"))
	c.must(c.Until(`window.location.pathname.includes("/ended/")`))
	c.must(c.Until(`document.querySelector("pre").textContent.includes("<script>alert(1)</script>") && document.querySelector("pre script") === null`))
	c.must(c.Go(c.Address))
	c.must(c.Until(`document.querySelector("#ended a").textContent === "one"`))
}

// visitOther waits until what an expression promises has a text: then what comes after it is sent, too.
func (c crew) visitOther(expression, text string) {
	c.t.Helper()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); <-again.C {
		if page, err := c.Promised(expression); err == nil && strings.Contains(page, text) {
			return
		}
	}
	c.t.Fatalf("there is no %q", text)
}

// axe is where make puts the rules.
func axe(t *testing.T) string {
	t.Helper()
	root, err := wall.Root()
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(root, "dist", "axe", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatalf("%v: make test-live-page fetches it", err)
	}
	return string(rules)
}

// Every page follows the rules of axe-core, which are those of WCAG and best practices: light and dark, on a wall and on a phone.
func TestEveryoneCanReadThePages(t *testing.T) {
	c := open(t)
	ctx := t.Context()
	rules := axe(t)
	for n := range 5 {
		c.running(fmt.Sprint("running-", n))
	}
	bad := c.crashing("bad")
	c.write("queued", wall.Waiting(bergv1.PhasePending, bergv1.CauseQueued, bergv1.ConditionAdmitted, "1 of 1 instances exist"))
	c.write("failed", wall.Waiting(bergv1.PhaseFailed, bergv1.CauseInvalid, bergv1.ConditionChallengeFound, "the Challenge has no containers"))
	c.must(c.Event(ctx, bad, corev1.EventTypeWarning, "Crashing", "it ended again"))
	ended := c.running("ended")
	c.must(c.Record(ctx, ended, strings.Repeat("a line of a log\n", 200)))
	c.must(c.Delete(ctx, "ended"))
	for _, path := range []string{"", "?q=nothing-is-called-this", "instances/bad", "instances/running-1", "ended/" + string(ended.UID)} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int64{1280, 390} {
				c.must(c.Size(width, 900))
				c.must(c.Prefer("prefers-color-scheme", scheme))
				c.must(c.Go(c.Address + path))
				c.must(c.Until(`document.querySelector("h1") !== null`))
				if _, err := c.Text("(() => { " + rules + "\n})()"); err != nil {
					t.Fatal(err)
				}
				found, err := c.Promised(`axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify({passes: r.passes.length,
					violations: r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.map((n) => n.html + " " + n.failureSummary)}))}))`)
				c.must(err)
				var result struct {
					Passes     int
					Violations []struct {
						ID, Help string
						Nodes    []string
					}
				}
				c.must(json.Unmarshal([]byte(found), &result))
				if result.Passes < 5 {
					t.Errorf("%q: only %d rules were tried", path, result.Passes)
				}
				for _, v := range result.Violations {
					t.Errorf("%q, %s, %d pixels wide: %s: %s\n%s", path, scheme, width, v.ID, v.Help, strings.Join(v.Nodes, "\n"))
				}
				wide, err := c.Number("document.documentElement.scrollWidth")
				c.must(err)
				if int64(wide) > width {
					t.Errorf("%q, %d pixels wide: a person must scroll sideways, to %v", path, width, wide)
				}
				page, err := c.Text("document.documentElement.outerHTML")
				c.must(err)
				if strings.Contains(page, "not-for-the-wall") {
					t.Errorf("%q shows a flag", path)
				}
			}
		}
	}
}
