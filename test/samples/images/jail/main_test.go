package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

func TestPlay(t *testing.T) {
	var out strings.Builder
	if err := play(strings.NewReader("report\n\nid\nseize nothing\nsh\n"), &out); err != nil {
		t.Fatal(err)
	}
	answers := strings.Split(out.String(), "end\n")
	if len(answers) != 5 {
		t.Fatalf("%d answers: %s", len(answers), out.String())
	}
	var r Report
	if err := json.Unmarshal([]byte(answers[0]), &r); err != nil || r.PID != os.Getpid() || r.Namespaces["user"] == "" || r.Processes == 0 || r.Capabilities == "" {
		t.Errorf("%+v, %v", r, err)
	}
	if !strings.HasPrefix(answers[1], "uid=") {
		t.Errorf("id: %s", answers[1])
	}
	if !strings.Contains(answers[2], `unknown attempt "nothing": want one of clock, device,`) {
		t.Errorf("seize: %s", answers[2])
	}
	if !strings.HasPrefix(answers[3], "error: want report") {
		t.Errorf("an unknown command: %s", answers[3])
	}
}
