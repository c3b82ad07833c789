package copilot

import (
	"context"

	"github.com/github/copilot-sdk/go/rpc"
)

// Mode is [gateway.HostInfo].Mode.
func (s *session) Mode(ctx context.Context) (string, error) {
	c, err := s.waitConn(ctx)
	if err != nil {
		return "", err
	}
	var mode string
	err = execute(ctx, c.process, askTimeout, func(ctx context.Context) error {
		m, err := c.sdk.RPC.Mode.Get(ctx)
		if err == nil {
			mode = string(*m)
		}
		return err
	})
	return mode, err
}

// SetMode is [gateway.HostInfo].SetMode.
func (s *session) SetMode(ctx context.Context, mode string) error {
	c, err := s.waitConn(ctx)
	if err != nil {
		return err
	}
	return execute(ctx, c.process, askTimeout, func(ctx context.Context) error {
		_, err := c.sdk.RPC.Mode.Set(ctx, &rpc.ModeSetRequest{Mode: rpc.SessionMode(mode)})
		return err
	})
}
