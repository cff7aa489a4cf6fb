package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestAnAmountIsCentsAndNeverAFloat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Cents{
		"0.00":          0,
		"0.01":          1,
		"0.29":          29, // 0.29 * 100 is 28.999999999999996
		"1.10":          110,
		"0000000001.10": 110,
		"4503599627.37": 450359962737,
		"9999999999.99": 999999999999,
	} {
		var got Cents
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
		if back := got.String(); back != strings.TrimLeft(text[:len(text)-4], "0")+text[len(text)-4:] {
			t.Errorf("%s is written as %s", text, back)
		}
	}
	for _, text := range []string{"", ".", "1", "1.", ".10", "1.1", "1.100", "1,10", "+1.10", "-1.10", " 1.10", "1.10\n", "1e2", "0x1.10", "1_0.10", "١.10", "10000000000.00", "NaN", "Inf"} {
		var got Cents
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}

// What the edge lets through, the processor must be able to decode and store.
func FuzzNotification(f *testing.F) {
	for line := range strings.Lines(notificationsFile) {
		f.Add(`{"pix":[` + line + `]}`)
	}
	f.Add(`{"pix":[{"endToEndId":"E12345678202601151230aaaaaaaaaaa","VALOR":"1.00"},null,{}],"PIX":[{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		var w webhook
		if unmarshal([]byte(text), &w) != nil {
			return
		}
		entries, problems := w.entries()
		if len(problems) > 0 {
			return
		}
		for i, entry := range entries {
			var again CreditPix
			if err := json.Unmarshal(w.Pix[i].raw, &again); err != nil {
				t.Fatalf("does not decode again: %v", err)
			}
			if !strings.Contains(text, string(w.Pix[i].raw)) {
				t.Fatalf("%q is not what was received", w.Pix[i].raw)
			}
			if len(entry.MessageID) != 32 || again.EndToEndID != entry.MessageID {
				t.Fatalf("id %q of %q", entry.MessageID, again.EndToEndID)
			}
			if again.Valor < 0 || again.Valor > 999_999_999_999 {
				t.Fatalf("amount %d", again.Valor)
			}
			if strings.ContainsAny(again.Chave+again.TxID, "\x00\n") {
				t.Fatalf("chave %q, txid %q", again.Chave, again.TxID)
			}
		}
	})
}
