package sources

import (
	"cmp"
	"context"
	"fmt"

	"tapgw/internal/visible"
	"tapgw/internal/watch"
)

// watchFiles makes events of changes of the source's files, until ctx ends.
func (s *source) watchFiles(ctx context.Context, emit func(...origin)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var noDir error
	missing := func() {
		noDir = fmt.Errorf("there is no directory %s: its files are watched once it is there",
			visible.Line(s.o.Dir))
		why := noDir.Error()
		s.o.Line(fromGateway, why)
		if s.try != nil {
			cancel()
			return
		}
		s.do(func() { s.waitsFor = why })
	}
	err := watch.Tree(ctx, s.o.Dir, s.config.Files, func(changes []watch.Change) {
		if len(changes) == 0 {
			s.o.Line(fromGateway, "the files are watched")
			if s.try == nil {
				s.do(func() { s.waitsFor = "" })
			}
			return
		}
		list := make([]origin, len(changes))
		for i, c := range changes {
			file := visible.Line(c.File)
			list[i] = origin{
				text: file + " was " + c.What, isLine: true,
				values: map[string]string{"file": file, "change": c.What},
			}
		}
		emit(list...)
	}, missing)
	if s.try != nil {
		return cmp.Or(noDir, err)
	}
	return err
}
