package assembly

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience bounds the wait for another goroutine.
const patience = 90 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
