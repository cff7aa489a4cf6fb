// Command generate writes the data files of the example: the accounts, and the
// notifications as the provider sends them, one JSON object a line.
package main

import (
	"bytes"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	accountCount      = 20
	notificationCount = 240
	unknownEvery      = 37 // notifications for an account that does not exist
	extraEvery        = 7  // with fields that the type does not know
	resent            = 101
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: generate DIRECTORY")
	}
	accounts, notifications := generate()
	for name, text := range map[string][]byte{"accounts.jsonl": accounts, "notifications.jsonl": notifications} {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// source takes numbers straight from PCG, which is the same in every Go release.
type source struct{ *rand.PCG }

func (s source) below(n int) int { return int(s.Uint64() % uint64(n)) }

func (s source) text(alphabet string, n int) string {
	out := make([]byte, n)
	for i := range out {
		out[i] = alphabet[s.below(len(alphabet))]
	}
	return string(out)
}

const (
	digits       = "0123456789"
	alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

var (
	names = strings.Fields("Ana Bruno Carla Diego Elisa Fábio Gabriela Hugo Inês João Karina Lucas Marina Nuno Olívia Paulo Rita Sérgio Teresa Vítor")
	notes = []string{"", `obrigado`, `aluguel de março`, `caf\u00e9 com p\u00e3o`, `pedido \"42\"`, `🍞 & <b>`, `linha 1\nlinha 2`}
	extra = []string{
		`"devolucoes":[{"id":"D1","rtrId":"D12345678202601011200abcdefghijk","valor":"0.01","horario":{"solicitacao":"2026-01-01T12:00:00.000-03:00"},"status":"DEVOLVIDO"}]`,
		`"gnExtras":{"pagador":{"nome":"Fulano de Tal","codigoBanco":"12345678"},"tarifa":"0.00"}`,
		`"componentesValor":{"original":{"valor":"9007199254740993.00","n":9007199254740993,"x":1e400}}`,
	}
)

func generate() (accounts, notifications []byte) {
	random := source{rand.NewPCG(2020, 11)}
	var chaves []string
	var out bytes.Buffer
	for i := range accountCount {
		chave := chaveOf(random, i)
		chaves = append(chaves, chave)
		fmt.Fprintf(&out, `{"chave":%q,"name":%q}`+"\n", chave, names[i])
	}
	accounts = bytes.Clone(out.Bytes())
	out.Reset()
	var again string
	for i := range notificationCount {
		chave := chaves[random.below(accountCount)]
		if i%unknownEvery == unknownEvery-1 {
			chave = fmt.Sprintf("nobody%d@example.com", i)
		}
		cents := int64(1 + random.below(50_000))
		if i%50 == 49 {
			cents = 999_999_999_999 // the largest amount there is
		}
		line := notification(random, i, chave)
		if i == resent {
			again = fmt.Sprintf(line, amount(cents+100))
		}
		fmt.Fprintf(&out, line+"\n", amount(cents))
	}
	// The last line has the identity of an earlier one, and another amount.
	fmt.Fprintln(&out, again)
	return accounts, out.Bytes()
}

func chaveOf(random source, i int) string {
	switch i % 4 {
	case 1:
		return "+55119" + random.text(digits, 8)
	case 2:
		const hex = "0123456789abcdef"
		return strings.Join([]string{random.text(hex, 8), random.text(hex, 4), "4" + random.text(hex, 3), "8" + random.text(hex, 3), random.text(hex, 12)}, "-")
	case 3:
		return random.text(digits, 14)
	}
	return []string{"ana", "elisa", "ines", "marina", "rita"}[i/4] + "@example.com"
}

// notification leaves the amount open. Spacing and order of the fields vary, as
// they do between providers.
func notification(random source, i int, chave string) string {
	at := time.Date(2026, time.January, 1+i%28, 3, 0, 0, 0, time.UTC).Add(time.Duration(random.below(18*3600)) * time.Second)
	zone := time.FixedZone("", -3*3600)
	fields := []string{
		fmt.Sprintf(`"endToEndId":"E%s%s%s"`, random.text(digits, 8), at.Format("200601021504"), random.text(alphanumeric, 11)),
		fmt.Sprintf(`"txid":"%s"`, random.text(alphanumeric, 26+random.below(10))),
		`"valor":"%s"`,
		fmt.Sprintf(`"horario":"%s"`, at.In(zone).Format("2006-01-02T15:04:05.000Z07:00")),
		fmt.Sprintf(`"chave":"%s"`, chave),
	}
	if note := notes[random.below(len(notes))]; note != "" {
		fields = append(fields, fmt.Sprintf(`"infoPagador":"%s"`, strings.ReplaceAll(note, "%", "%%")))
	}
	if i%extraEvery == 0 {
		fields = append(fields, extra[i/extraEvery%len(extra)])
	}
	if i%5 == 0 {
		for j := range fields[1:] {
			k := j + random.below(len(fields)-j)
			fields[j], fields[k] = fields[k], fields[j]
		}
		return "{ " + strings.Join(fields, ", ") + " }"
	}
	return "{" + strings.Join(fields, ",") + "}"
}

func amount(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }
