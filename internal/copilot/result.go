package copilot

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/url"
	"strings"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// Outcomes of tool calls, in the runtime's form.

// The runtime's types of a tool's result.
const (
	resultSuccess  = "success"
	resultFailure  = "failure"
	resultTimeout  = "timeout"
	resultDenied   = "denied"
	resultRejected = "rejected"
)

// noResult is the text of an empty result, because models take an empty text for a failure.
const noResult = "The tool returned nothing."

// toolResult converts a call's outcome for the model. The result always has a text.
func toolResult(o gateway.Outcome) *rpc.ExternalToolTextResultForLlm {
	switch {
	case o.Failed():
		return failureResult(o)
	case o.File != nil:
		return fileResult(o.File)
	case o.Content != nil:
		return partsResult(o.Content)
	}
	if text, ok := protocol.Text(o.Data); ok {
		return successResult(text)
	}
	if len(o.Data) == 0 {
		return successResult("")
	}
	if result := imageResult(o.Data); result != nil {
		return result
	}
	var compact bytes.Buffer
	if json.Compact(&compact, o.Data) != nil {
		return successResult(string(o.Data))
	}
	return successResult(compact.String())
}

func successResult(text string) *rpc.ExternalToolTextResultForLlm {
	if strings.TrimSpace(text) == "" {
		text = noResult
	}
	typ := resultSuccess
	return &rpc.ExternalToolTextResultForLlm{TextResultForLlm: text, ResultType: &typ}
}

func failureResult(o gateway.Outcome) *rpc.ExternalToolTextResultForLlm {
	typ := resultFailure
	switch o.ErrorCode {
	case protocol.CodeTimeout:
		typ = resultTimeout
	case protocol.CodeDenied:
		typ = resultDenied
	case protocol.CodeUnauthorized:
		typ = resultRejected
	}
	if strings.TrimSpace(o.Error) == "" {
		o.Error = "the tool gave no reason"
	}
	text := o.Text()
	return &rpc.ExternalToolTextResultForLlm{TextResultForLlm: text, ResultType: &typ, Error: &text}
}

// binaryResult is a result with data that is not text, and a text beside it.
func binaryResult(mimeType string, data []byte, text string) *rpc.ExternalToolTextResultForLlm {
	result := successResult(text)
	result.BinaryResultsForLlm = []rpc.ExternalToolTextResultForLlmBinaryResultsForLlm{binary(
		mimeType, data)}
	return result
}

// binary is data for the runtime: an image for the model, or a resource.
func binary(mimeType string, data []byte) rpc.ExternalToolTextResultForLlmBinaryResultsForLlm {
	typ := rpc.ExternalToolTextResultForLlmBinaryResultsForLlmTypeResource
	if strings.HasPrefix(mimeType, "image/") {
		typ = rpc.ExternalToolTextResultForLlmBinaryResultsForLlmTypeImage
	}
	return rpc.ExternalToolTextResultForLlmBinaryResultsForLlm{
		Data: base64.StdEncoding.EncodeToString(data), MIMEType: mimeType, Type: typ,
	}
}

// maxImage bounds an image that the model is shown, in bytes. GitHub's models refuse a larger one.
const maxImage = 3 << 20

// partsResult is the result for several parts: the images that the model can be shown, and a text
// that has the texts and names everything else. A file that it names the model can open.
func partsResult(parts []protocol.Part) *rpc.ExternalToolTextResultForLlm {
	texts := make([]string, len(parts))
	var images []rpc.ExternalToolTextResultForLlmBinaryResultsForLlm
	for i := range parts {
		p := &parts[i]
		texts[i] = p.String()
		isImage := p.Type == protocol.PartImage || strings.HasPrefix(p.MimeType, "image/")
		if isImage && len(p.Data) > 0 && len(p.Data) <= maxImage {
			images = append(images, binary(p.MimeType, p.Data))
		}
	}
	result := successResult(strings.Join(texts, "\n"))
	result.BinaryResultsForLlm = images
	return result
}

// imageResult is the result for a JSON object whose member image is a data: URL. The other members
// become the text. It returns nil for any other value.
func imageResult(raw protocol.Raw) *rpc.ExternalToolTextResultForLlm {
	if raw.Kind() != '{' {
		return nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil
	}
	image, ok := protocol.Text(protocol.Raw(members["image"]))
	if !ok {
		return nil
	}
	mimeType, data, err := parseDataURL(image)
	if err != nil || !strings.HasPrefix(mimeType, "image/") {
		return nil
	}
	delete(members, "image")
	text := fmt.Sprintf("An image (%s, %d bytes).", mimeType, len(data))
	if len(members) > 0 {
		rest, err := json.Marshal(members)
		if err != nil {
			return nil
		}
		text = string(rest)
	}
	return binaryResult(mimeType, data, text)
}

// parseDataURL parses a data: URL (RFC 2397).
func parseDataURL(s string) (mimeType string, data []byte, err error) {
	rest, ok := strings.CutPrefix(s, "data:")
	if !ok {
		return "", nil, errors.New("not a data: URL")
	}
	head, body, ok := strings.Cut(rest, ",")
	if !ok {
		return "", nil, errors.New("a data: URL without a comma")
	}
	head, encoded := strings.CutSuffix(head, ";base64")
	mimeType, _, err = mime.ParseMediaType(head)
	if err != nil {
		return "", nil, fmt.Errorf("reading a data: URL's type: %w", err)
	}
	if body, err = url.PathUnescape(body); err != nil {
		return "", nil, fmt.Errorf("reading a data: URL: %w", err)
	}
	if !encoded {
		return mimeType, []byte(body), nil
	}
	data, err = base64.StdEncoding.DecodeString(body)
	if err != nil {
		data, err = base64.RawStdEncoding.DecodeString(body)
	}
	return mimeType, data, err
}

// fileResult is the result that a provider left in a file: a text for text types, else binary.
func fileResult(f *gateway.File) *rpc.ExternalToolTextResultForLlm {
	if text, ok := f.Text(); ok {
		return successResult(text)
	}
	return binaryResult(f.MimeType, f.Content, f.String())
}
