package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shellCommand is a command that a document shows.
type shellCommand struct {
	document string
	line     int    // of the document, from 1
	text     string // continued lines are one
	// output is what the document says that it prints; nil: it says nothing.
	output *string
	argv   []string // without redirections and what sets the environment
}

// readDocument takes the commands and the blocks of YAML out of a document. Commands are
// in fenced blocks of sh and console, the latter with what they print, and in indented
// blocks.
func readDocument(t *testing.T, document string) (commands []shellCommand, blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", document))
	if err != nil {
		t.Fatal(err)
	}
	fence, above, block := "", "", ""
	open := false // the last command goes on, or prints
	var last *shellCommand
	add := func(number int, line string) {
		if last != nil && strings.HasSuffix(last.text, `\`) {
			last.text = strings.TrimSuffix(last.text, `\`) + " " + strings.TrimSpace(line)
			return
		}
		commands = append(commands, shellCommand{document: document, line: number, text: strings.TrimSpace(line)})
		last = &commands[len(commands)-1]
	}
	for i, line := range strings.Split(string(text), "\n") {
		if kind, is := strings.CutPrefix(line, "```"); is {
			switch {
			case open && fence == "yaml":
				blocks = append(blocks, block)
				fallthrough
			case open:
				open, fence, block = false, "", ""
			default:
				open, fence = true, kind
				if strings.HasPrefix(above, "<!-- file: ") {
					fence = "file" // another test compares it with the file
				}
			}
			last = nil
		} else {
			shown, prompt := strings.CutPrefix(line, "$ ")
			indented, isIndented := strings.CutPrefix(line, "    ")
			switch {
			case fence == "yaml":
				block += line + "\n"
			case fence == "sh" && line != "":
				add(i+1, line)
			case fence == "console" && prompt:
				last = nil
				add(i+1, shown)
				last.output = new(string)
			case fence == "console" && last != nil:
				*last.output += line + "\n"
			case !open && isIndented && strings.TrimSpace(indented) != "":
				add(i+1, indented)
			case !open:
				last = nil
			}
		}
		above = line
	}
	for i := range commands {
		commands[i].argv = shellWords(commands[i].text)
	}
	return commands, blocks
}

// words of a shell: quoted parts, escaped characters and others, until a blank.
var (
	shellWord  = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|\\.|[^\s'"\\])+`)
	assignment = regexp.MustCompile(`^[A-Z_0-9]+=`)
	// substituted is a command whose output a variable gets.
	substituted = regexp.MustCompile(`^[a-z_]+=\$\((.*)\)$`)
)

// shellWords gives the words of a command but for comments, redirections and what sets
// its environment; what stands behind a pipe is a word "|" and what follows.
func shellWords(text string) []string {
	if inner := substituted.FindStringSubmatch(text); inner != nil {
		text = inner[1]
	}
	var words []string
	found := shellWord.FindAllString(text, -1)
	for i := 0; i < len(found); i++ {
		word := found[i]
		switch {
		case strings.HasPrefix(word, "#"):
			return words
		case word == "<" || word == ">" || word == ">>":
			i++ // its file
		case len(words) == 0 && assignment.MatchString(word):
		default:
			words = append(words, strings.NewReplacer("'", "", `"`, "", `\`, "").Replace(word))
		}
	}
	return words
}

func TestShellWords(t *testing.T) {
	for text, want := range map[string]string{
		"A=1 go run ./x --y 'a b' \"c d\" e\\*f # why": "go|run|./x|--y|a b|c d|e*f",
		"x user n < in >> out":                         "x|user|n",
		"a --dry-run | b -f -":                         "a|--dry-run|||b|-f|-",
		"pods=$(kubectl get -o 'a b')":                 "kubectl|get|-o|a b",
		"# nothing":                                    "",
	} {
		if got := strings.Join(shellWords(text), "|"); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
