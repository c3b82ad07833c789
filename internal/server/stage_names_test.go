package server_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// names stand for values that differ from run to run.
type names struct {
	mu     sync.Mutex
	real   map[string]string // by name
	hidden map[string]string // by value
	count  map[string]int
}

func newNames() *names {
	return &names{real: map[string]string{}, hidden: map[string]string{}, count: map[string]int{}}
}

func (n *names) set(name, value string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.real[name], n.hidden[value] = value, "$"+name
}

// setQuestion names a question's id $q1, $q2 and so on.
func (n *names) setQuestion(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hidden[id] == "" {
		n.count["q"]++
		name := "q" + strconv.Itoa(n.count["q"])
		n.real[name], n.hidden[id] = id, "$"+name
	}
}

var changing = regexp.MustCompile(
	`(tok|ptk|adm|ext-tok)-[0-9a-f]{32}|\bp-[0-9a-f]{8}\b|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[a-z2-7]{4}-\d+\b`,
)

var pairingCode = regexp.MustCompile(`Pairing code: (\d{6})`)

// hide names the changing values of a line.
func (n *names) hide(line string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m := pairingCode.FindStringSubmatch(line); m != nil {
		n.real["code"] = m[1]
		line = strings.Replace(line, m[1], "$code", 1)
	}
	return changing.ReplaceAllStringFunc(line, func(value string) string {
		if name, ok := n.hidden[value]; ok {
			return name
		}
		if len(value) < len("p-12345678") {
			return value // looks like the id of a question, but is none
		}
		kind := "id"
		switch {
		case strings.HasPrefix(value, "tok-"):
			kind = "tok"
		case strings.HasPrefix(value, "p-"):
			kind = "p"
		}
		n.count[kind]++
		name := kind + strconv.Itoa(n.count[kind])
		n.real[name], n.hidden[value] = value, "$"+name
		return "$" + name
	})
}

var (
	placeholder = regexp.MustCompile(`\$[a-z]+[0-9]*`)
	generated   = regexp.MustCompile(`\$(tools|rules|filters|sections|x)\((\d+)\)`)
)

func (n *names) reveal(text string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	text = generated.ReplaceAllStringFunc(text, func(g string) string {
		m := generated.FindStringSubmatch(g)
		count, _ := strconv.Atoi(m[2])
		switch m[1] {
		case "x":
			return strings.Repeat("x", count)
		case "rules":
			return denyRules(count)
		case "filters":
			return filterRules(count)
		case "sections":
			return sections(count)
		}
		tools := make([]string, count)
		for i := range tools {
			tools[i] = fmt.Sprintf(`{"name":"t%d","description":"d","parameters":{}}`, i+1)
		}
		return "[" + strings.Join(tools, ",") + "]"
	})
	return placeholder.ReplaceAllStringFunc(text, func(name string) string {
		if value, ok := n.real[name[1:]]; ok {
			return value
		}
		return name
	})
}
