package mcpbridge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/protocol"
	"tapgw/internal/visible"
	"tapgw/providers"
)

const (
	maxText = 1 << 20 // bytes of a result's text; more is of no use to a model
	// bytes of a result's images in its message, which has at most 5 MiB; base64 makes them longer
	maxInline = 2 << 20
	maxReason = 500 // bytes of a server's message
)

// noURI stands for the URI of a resource without one.
const noURI = "about:blank"

// convert makes a provider's result of a server's. A single text stays a text and an object an
// object; any other result has parts. keep writes bytes that are too large for a message, or of a
// type that models don't take, to a file, and returns its path.
func convert(
	r *mcp.CallToolResult, keep func(mimeType string, data []byte) (string, error),
) (any, error) {
	c := &converter{keep: keep, room: maxText}
	for _, content := range r.Content {
		c.add(content)
	}
	structured, isRepeated, err := c.structured(r.StructuredContent)
	if err != nil {
		return nil, err
	}
	isObject := strings.HasPrefix(structured, "{") && len(structured) <= maxText
	isAll := len(r.Content) == 0 || len(r.Content) == 1 && isRepeated
	if !r.IsError && isAll && isObject {
		return json.RawMessage(structured), nil // programs get it as it is, a model as text
	}
	if structured != "" && !isRepeated {
		c.addText(structured) // a model gets the parts alone
	}
	switch {
	case r.IsError:
		return nil, c.failure()
	case len(c.parts) == 0:
		return "", nil
	case len(c.parts) == 1 && c.parts[0].Type == protocol.PartText:
		return c.parts[0].Text, nil
	case isObject:
		return providers.Content{Parts: c.parts, Data: json.RawMessage(structured)}, nil
	}
	return providers.Content{Parts: c.parts}, nil
}

// convertResource makes a result of the server's answer to a read.
func convertResource(
	all []*mcp.ResourceContents, keep func(string, []byte) (string, error),
) (any, error) {
	result := &mcp.CallToolResult{}
	for _, contents := range all {
		if len(all) == 1 && contents != nil && contents.Blob == nil {
			result.Content = append(result.Content, &mcp.TextContent{Text: contents.Text})
			continue
		}
		result.Content = append(result.Content, &mcp.EmbeddedResource{Resource: contents})
	}
	return convert(result, keep)
}

// converter collects the parts of a result.
type converter struct {
	parts  []providers.Part
	texts  []string // that may be JSON
	keep   func(mimeType string, data []byte) (string, error)
	room   int // bytes that texts may still have
	inline int // bytes of images so far
}

// failure is the error of a result that says it is one.
func (c *converter) failure() error {
	texts := make([]string, len(c.parts))
	for i := range c.parts {
		texts[i] = c.parts[i].String()
	}
	text := strings.Join(texts, "\n")
	if strings.TrimSpace(text) == "" {
		return errors.New("the MCP server gave no reason")
	}
	return errors.New(text)
}

// addPart adds a part, unless there are too many: then the last one says so.
func (c *converter) addPart(p providers.Part) {
	switch n := len(c.parts); {
	case n < protocol.MaxParts-1:
		c.parts = append(c.parts, p)
	case n == protocol.MaxParts-1:
		c.parts = append(c.parts, providers.Part{Type: protocol.PartText,
			Text: fmt.Sprintf("[further parts are left out: a result has at most %d]",
				protocol.MaxParts)})
	}
}

func (c *converter) say(format string, args ...any) { c.addText(fmt.Sprintf(format, args...)) }

func (c *converter) addText(text string) {
	c.addPart(providers.Part{Type: protocol.PartText, Text: c.fit(text)})
}

// fit cuts a text to the room that is left in the message.
func (c *converter) fit(text string) string {
	if len(text) > c.room {
		cut := strings.ToValidUTF8(text[:c.room], "")
		c.room = 0
		return fmt.Sprintf("%s\n[cut here: the whole text has %d bytes]", cut, len(text))
	}
	c.room -= len(text)
	return text
}

func (c *converter) add(content mcp.Content) {
	switch v := content.(type) {
	case *mcp.TextContent:
		c.texts = append(c.texts, v.Text)
		c.addText(v.Text)
	case *mcp.ImageContent:
		c.addBytes(providers.Part{Type: protocol.PartImage, MimeType: v.MIMEType, Data: v.Data})
	case *mcp.AudioContent:
		c.addBytes(providers.Part{Type: protocol.PartAudio, MimeType: v.MIMEType, Data: v.Data})
	case *mcp.ResourceLink:
		c.addLink(v)
	case *mcp.EmbeddedResource:
		c.addResource(v.Resource)
	default:
		c.say("[a part of the result that can't be shown here]")
	}
}

func kindOf(mimeType string) string {
	if mimeType == "" {
		return "of no named type"
	}
	return visible.Line(shorten(mimeType, 100))
}

// addBytes adds an image, a sound or a resource. Images go in the message while there is room, and
// everything else in a file, which a model can open.
func (c *converter) addBytes(p providers.Part) {
	isImage := strings.HasPrefix(p.MimeType, "image/")
	size, kind := len(p.Data), kindOf(p.MimeType)
	switch {
	case strings.ContainsAny(p.MimeType, ",;\r\n"),
		p.Type != protocol.PartResource && !strings.HasPrefix(p.MimeType, p.Type+"/"):
		c.say("[%s, %s, %d bytes: its type is not that of %s]", p.Type, kind, size, p.Type)
		return
	case isImage && c.inline+size <= maxInline:
		c.inline += size
		c.addPart(p)
		return
	}
	path, err := c.keep(p.MimeType, p.Data)
	if err != nil {
		c.say("[%s, %s, %d bytes: it can't be kept: %v]", p.Type, kind, size, err)
		return
	}
	p.Data, p.File = nil, &providers.FileRef{Path: path, MimeType: p.MimeType}
	c.addPart(p)
}

func (c *converter) addLink(l *mcp.ResourceLink) {
	if l.URI == "" {
		c.say("[a link to nothing]")
		return
	}
	about := notEmpty(l.Title, l.Description)
	if l.Size != nil {
		about = append(about, fmt.Sprintf("%d bytes", *l.Size))
	}
	c.addPart(providers.Part{Type: protocol.PartResource, URI: c.fit(l.URI), Name: c.fit(l.Name),
		MimeType: l.MIMEType, Description: c.fit(strings.Join(about, ", "))})
}

func notEmpty(all ...string) (some []string) {
	for _, s := range all {
		if s != "" {
			some = append(some, s)
		}
	}
	return some
}

func (c *converter) addResource(r *mcp.ResourceContents) {
	switch {
	case r == nil:
		c.say("[a resource without content]")
	case r.Blob != nil:
		c.addBytes(providers.Part{Type: protocol.PartResource, URI: c.fit(cmp.Or(r.URI, noURI)),
			MimeType: r.MIMEType, Data: r.Blob})
	default:
		c.addPart(providers.Part{Type: protocol.PartResource, URI: c.fit(cmp.Or(r.URI, noURI)),
			MimeType: r.MIMEType, Text: c.fit(r.Text)})
	}
}

// structured is the structured result as JSON, and whether a text says the same. Its numbers are
// not as the server wrote them if they are beyond 2^53.
func (c *converter) structured(v any) (text string, isRepeated bool, err error) {
	if v == nil {
		return "", false, nil
	}
	for _, text := range c.texts {
		var same any
		if json.Unmarshal([]byte(text), &same) != nil || !reflect.DeepEqual(same, v) {
			continue
		}
		if text = strings.TrimSpace(text); protocol.Raw(text).IsValid() {
			return text, true, nil
		}
		isRepeated = true // with a key that stands twice, for example
	}
	data, err := protocol.Marshal(v)
	if err != nil {
		return "", false, fmt.Errorf("writing the structured result: %w", err)
	}
	return string(data), isRepeated, nil
}
