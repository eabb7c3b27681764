package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The block for go test in the guide to tests of programs runs as it is. It runs in a package of this module, which has the SDK.
func TestTheBlockForGoTestIsAWholeTest(t *testing.T) {
	page, err := os.ReadFile("../../docs/guides/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?ms)^## go test$.*?^```go\n(.*?)^```$").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no block")
	}
	directory, err := os.MkdirTemp(".", "guide-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	if err := os.WriteFile(filepath.Join(directory, "live_test.go"), block[1], 0o600); err != nil {
		t.Fatal(err)
	}
	binary := os.Getenv("TOUCHLINE_BIN")
	if binary == "" {
		binary = "../../target/debug/touchline"
	}
	path, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.Symlink(path, filepath.Join(folder, "touchline")); err != nil {
		t.Fatal(err)
	}
	run := exec.Command("go", "test", "-count=1", "-v", "./"+directory)
	run.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	said, err := run.CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^--- PASS: TestAGoalReachesAFan`).Match(said) {
		t.Fatalf("%v\n%s", err, said)
	}
}
