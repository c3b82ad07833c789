package testlog

import (
	"fmt"
	"strings"
	"testing"
)

func TestLog(t *testing.T) {
	tests := []struct{ name, output, want string }{
		{"nothing known", "hello\nworld\n", ""},
		{"go", `ok  	example/a	0.010s
--- FAIL: TestParse (0.00s)
    parse_test.go:17: got 3, want 4
    parse_test.go:18: and more
--- FAIL: TestTree (0.01s)
    --- FAIL: TestTree/empty_root (0.00s)
        tree_test.go:40: nil
FAIL
FAIL	example/b	0.012s
# example/c
./main.go:9:2: undefined: x
FAIL	example/c [build failed]
FAIL
`, `Failed (5):
- TestParse: parse_test.go:17: got 3, want 4
- TestTree
- TestTree/empty_root: tree_test.go:40: nil
- ./main.go:9:2: undefined: x
- example/c [build failed]
example/b	0.012s
`},
		{"go panics",
			"panic: runtime error: index out of range [recovered]\n\ngoroutine 7 [running]:\nFAIL\texample/d\t0.1s\n",
			"Failed (1):\n- panic: runtime error: index out of range [recovered]\nexample/d\t0.1s\n"},
		{"go passes", "ok  \texample/a\t(cached)\nPASS\n", ""},
		{"pytest", `tests/test_a.py .F.                 [100%]
=========================== short test summary info ============================
FAILED tests/test_a.py::test_sum[1-2] - assert 3 == 4
ERROR tests/test_b.py - ModuleNotFoundError: No module named 'x'
==================== 1 failed, 2 passed, 1 error in 0.12s =====================
`, `Failed (2):
- tests/test_a.py::test_sum[1-2] - assert 3 == 4
- tests/test_b.py - ModuleNotFoundError: No module named 'x'
1 failed, 2 passed, 1 error in 0.12s
`},
		{"unittest",
			"FAIL: test_it (tests.T.test_it)\nRan 3 tests in 0.001s\n\nFAILED (failures=1)\n",
			"Failed (1):\n- test_it (tests.T.test_it)\nRan 3 tests in 0.001s\nFAILED (failures=1)\n"},
		{"jest", `FAIL src/sum.test.js
  ● sum › adds

    expect(received).toBe(expected)

  ● sum › adds

Test Suites: 1 failed, 3 passed, 4 total
Tests:       1 failed, 9 passed, 10 total
`, "Failed (1):\n- sum › adds\nTest Suites: 1 failed, 3 passed, 4 total\nTests:       1 failed, 9 passed, 10 total\n"},
		{"vitest",
			" FAIL  src/a.test.ts > sum > adds\n Test Files  1 failed (1)\n      Tests  1 failed | 2 passed " +
				"(3)\n",
			"Failed (1):\n- src/a.test.ts > sum > adds\nTest Files  1 failed (1)\nTests  1 failed | 2 passed (3)\n"},
		{"maven", `[ERROR] Tests run: 2, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: 0.05 s <<< FAILURE! - in FooTest
[ERROR] Failures: 
[ERROR]   FooTest.adds:14 expected: <3> but was: <4>
[ERROR] Tests run: 12, Failures: 1, Errors: 0, Skipped: 0
`, "Failed (1):\n- FooTest.adds:14 expected: <3> but was: <4>\nTests run: 12, Failures: 1, Errors: 0, Skipped: 0\n"},
		{"gradle",
			"FooTest > adds() FAILED\n    java.lang.AssertionError\n\n3 tests completed, 1 failed\n", "Failed (1):\n- FooTest > adds()\n3 tests completed, 1 failed\n"},
		{"cargo",
			"test tests::adds ... FAILED\ntest tests::subs ... ok\ntest result: FAILED. 1 passed; 1 failed; 0 " +
				"ignored\n",
			"Failed (1):\n- tests::adds\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := summary(tt.output); got != tt.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

func TestManyFailures(t *testing.T) {
	var b strings.Builder
	for i := range 80 {
		fmt.Fprintf(&b, "--- FAIL: Test%d%s (0.00s)\n", i, strings.Repeat("x", 1000))
	}
	got := summary(b.String())
	if !strings.HasPrefix(got, "Failed (80):\n- Test0x") || !strings.Contains(got, "- Test49x") ||
		!strings.HasSuffix(got, "- and 30 more\n") || len(got) > 30000 {
		t.Errorf("got %s, want %q at the beginning and %q in it", got, "Failed (80):\n- Test0x",
			"- Test49x")
	}
}

func summary(output string) string {
	var l Log
	for line := range strings.SplitSeq(output, "\n") {
		l.Add(line)
	}
	return l.String()
}
