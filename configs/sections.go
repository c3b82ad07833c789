package configs

// Section is a table with a header in a TOML text, for programs that edit one part of the text.
// Start is the offset of the header, End the offset after its last pair. The pairs before the first
// header are a section without a path.
type Section struct {
	Path       []string
	Start, End int
	Pairs      []Pair
}

// Pair is a key and its value in a [Section], as offsets in the text. The value of a number or a
// word may end in white space. Key has several parts if it is dotted.
type Pair struct {
	Key        []string
	Start, End int
}

// Sections reads a TOML text of any program: its values, and where its tables stand, in their
// order. An element of an array of tables has its index behind the array's name: [0]. The faults
// name the file and the line.
func Sections(file string, data []byte) (values map[string]any, sections []Section, faults Faults) {
	doc, t := open(file, data)
	if t == nil {
		return nil, nil, doc.faults
	}
	return t.values, scan(string(data)).sections, nil
}
