package sources

import (
	"context"

	"tapgw/internal/visible"
	"tapgw/internal/watch"
)

// watchFiles makes events of changes of the source's files, until ctx ends.
func (s *source) watchFiles(ctx context.Context, emit func(...origin)) error {
	return s.set.trees.Watch(ctx, s.o.Dir, s.of.Files, func(changes []watch.Change) {
		if len(changes) == 0 {
			s.o.Line(fromGateway, "the files are watched")
			return
		}
		list := make([]origin, len(changes))
		for i, c := range changes {
			file := visible.Line(c.File)
			list[i] = origin{
				text: file + " was " + c.What, isLine: true, values: map[string]string{"file": file, "change": c.What},
			}
		}
		emit(list...)
	})
}
