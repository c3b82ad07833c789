package main

import "testing"

func TestSameAddress(t *testing.T) {
	for _, tt := range []struct {
		url, listen string
		want        bool
	}{
		{"ws://127.0.0.1:9400", "127.0.0.1:9400", true},
		{"ws://127.0.0.1:9400", "localhost:9400", true},
		{"ws://127.0.0.1:9400", "127.0.0.1:0", true},
		{"ws://127.0.0.1:9400", "127.0.0.1:400", false},
		{"ws://127.0.0.1:9400", "127.0.0.1:9401", false},
	} {
		if got := isSameAddress(tt.url, tt.listen); got != tt.want {
			t.Errorf("isSameAddress(%q, %q) = %v, want %v", tt.url, tt.listen, got, tt.want)
		}
	}
}
