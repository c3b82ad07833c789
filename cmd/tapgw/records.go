package main

import (
	"tapgw/configs"
	"tapgw/internal/records"
)

// recordOptions says what this gateway keeps of what happens.
func (p *gatewayProcess) recordOptions(c configs.Config) records.Options {
	return records.Options{
		Dir: p.state.Records(), Off: !c.Records.Enabled, MaxAge: c.Records.MaxAge, MaxBytes: int64(c.Records.MaxBytes),
		FaultsChanged: func() {
			p.log.Warn("records", "fault", p.records.Faults())
			p.gateway.Touch()
		},
	}
}
