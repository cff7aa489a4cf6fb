package inbox

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxErrorText is how many bytes of an error are kept with a message.
const maxErrorText = 4 << 10

// errorText returns what can always be stored of an error: valid UTF-8 without
// control characters, cut to maxErrorText bytes, even if Error panics.
func errorText(err error) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("%T: its Error method panicked", err)
		}
	}()
	return cleanText(err.Error())
}

func cleanText(text string) string {
	cut := len(text) > maxErrorText
	if cut {
		text = text[:maxErrorText]
		// Do not leave half of a character at the cut.
		for i := 0; i < utf8.UTFMax && len(text) > 0; i++ {
			if r, size := utf8.DecodeLastRuneInString(text); r != utf8.RuneError || size > 1 {
				break
			}
			text = text[:len(text)-1]
		}
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	text = strings.Map(func(r rune) rune {
		if isControl(r) {
			return ' '
		}
		return r
	}, text)
	// Replacing bad bytes by a longer character may have made it grow.
	for len(text) > maxErrorText {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}
