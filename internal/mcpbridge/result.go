package mcpbridge

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

const (
	maxText   = 1 << 20 // bytes of a result's text; more is of no use to a model
	maxImage  = 3 << 20 // bytes of an image, which base64 makes a third longer
	maxReason = 500     // bytes of a server's message
)

// imageData is the form of a result that the model sees as an image, with a text beside it (docs/protocol.md, "Calls").
type imageData struct {
	Image string `json:"image"`
	Text  string `json:"text,omitempty"`
}

// convert makes a result of the server what the gateway gives a model: a text, or an image with a text. What a model
// can't get is named in the text.
func convert(r *mcp.CallToolResult) (any, error) {
	c := &converter{}
	for _, content := range r.Content {
		c.add(content)
	}
	structured, isRepeated, err := c.structured(r.StructuredContent)
	if err != nil {
		return nil, err
	}
	isAll := len(r.Content) == 0 || len(r.Content) == 1 && isRepeated
	if !r.IsError && isAll && strings.HasPrefix(structured, "{") && len(structured) <= maxText {
		return json.RawMessage(structured), nil // programs get it as it is, a model as text
	}
	if structured != "" && !isRepeated {
		c.parts = append(c.parts, structured)
	}
	text := strings.Join(c.parts, "\n")
	if len(text) > maxText {
		cut := strings.ToValidUTF8(text[:maxText], "")
		text = fmt.Sprintf("%s\n[cut here: the whole result has %d bytes]", cut, len(text))
	}
	switch {
	case r.IsError && strings.TrimSpace(text) == "":
		return nil, errors.New("the MCP server gave no reason")
	case r.IsError:
		return nil, errors.New(text)
	case c.image != "":
		return imageData{c.image, text}, nil
	}
	return text, nil
}

// convertResource makes what the server answered to a reading a result.
func convertResource(all []*mcp.ResourceContents) (any, error) {
	result := &mcp.CallToolResult{}
	for _, contents := range all {
		if len(all) == 1 && contents != nil && contents.Blob == nil {
			result.Content = append(result.Content, &mcp.TextContent{Text: contents.Text})
			continue
		}
		result.Content = append(result.Content, &mcp.EmbeddedResource{Resource: contents})
	}
	return convert(result)
}

// converter collects the parts of a result.
type converter struct {
	parts []string
	texts []string // of the parts that may be JSON
	image string   // the first one, as a data: URL
}

func (c *converter) say(format string, args ...any) {
	c.parts = append(c.parts, fmt.Sprintf(format, args...))
}

func (c *converter) add(content mcp.Content) {
	switch v := content.(type) {
	case *mcp.TextContent:
		c.parts, c.texts = append(c.parts, v.Text), append(c.texts, v.Text)
	case *mcp.ImageContent:
		c.addImage("", v.MIMEType, v.Data)
	case *mcp.AudioContent:
		c.say("[a sound, %s, %d bytes: it can't be shown here]", kindOf(v.MIMEType), len(v.Data))
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

// addImage keeps the first image, since a result has one at most, and names others.
func (c *converter) addImage(uri, mimeType string, data []byte) {
	name := "image"
	if uri != "" {
		name += " " + visible.Line(shorten(uri, maxReason))
	}
	switch {
	case !strings.HasPrefix(mimeType, "image/") || strings.ContainsAny(mimeType, ",;\r\n"):
		c.say("[%s, %s, %d bytes: its type is not that of an image]", name, kindOf(mimeType), len(data))
	case len(data) > maxImage:
		c.say("[%s, %s, %d bytes: too large to be shown]", name, mimeType, len(data))
	case c.image != "":
		c.say("[another %s, %s, %d bytes: a result shows one only]", name, mimeType, len(data))
	default:
		c.image = "data:" + mimeType + ";base64," + base64.StdEncoding.EncodeToString(data)
	}
}

func (c *converter) addLink(l *mcp.ResourceLink) {
	about := visible.Line(shorten(strings.Join(notEmpty(l.Name, l.Title, l.Description, l.MIMEType), ", "), maxReason))
	if l.Size != nil {
		about += fmt.Sprintf(", %d bytes", *l.Size)
	}
	c.say("[resource %s: %s]", visible.Line(shorten(l.URI, maxReason)), about)
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
	case strings.HasPrefix(r.MIMEType, "image/") && r.Blob != nil:
		c.addImage(r.URI, r.MIMEType, r.Blob)
	case r.Blob != nil:
		c.say("[resource %s, %s, %d bytes: it is no text]",
			visible.Line(shorten(r.URI, maxReason)), kindOf(r.MIMEType), len(r.Blob))
	default:
		c.say("[resource %s]\n%s", visible.Line(shorten(r.URI, maxReason)), r.Text)
	}
}

// structured is the structured result as JSON, and whether a text says the same. Its numbers are not as the server
// wrote them if they are beyond 2^53.
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
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", false, fmt.Errorf("writing the structured result: %w", err)
	}
	return strings.TrimSpace(data.String()), isRepeated, nil
}
