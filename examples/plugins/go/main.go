// A plugin with one tool, in Go without packages of others: tells how long a text is. Speaks the `init` form.
//
//	go build -o length . && helve call length '{"text":"abc"}' --set plugins=$PWD/length
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"unicode/utf8"
)

type message struct {
	Type   string `json:"type"`
	Name   string `json:"name,omitempty"`
	CallID string `json:"call_id,omitempty"`
	Params struct {
		Text string `json:"text"`
	} `json:"params"`
}

type block struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type answer struct {
	Type    string           `json:"type"`
	CallID  string           `json:"call_id,omitempty"`
	Content []block          `json:"content,omitempty"`
	Tools   []map[string]any `json:"tools,omitempty"`
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked message
		if json.Unmarshal(line, &asked) != nil {
			continue
		}
		switch asked.Type {
		case "init":
			text := map[string]any{"type": "string", "description": "The text."}
			out.Encode(answer{Type: "init", Tools: []map[string]any{{
				"name":        "length",
				"description": "Tells how many characters a text has.",
				"parameters": map[string]any{
					"type": "object", "properties": map[string]any{"text": text}, "required": []string{"text"},
				},
			}}})
		case "call":
			count := strconv.Itoa(utf8.RuneCountInString(asked.Params.Text))
			out.Encode(answer{Type: "result", CallID: asked.CallID, Content: []block{{"text", count}}})
		}
	}
}
