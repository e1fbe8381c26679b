package capture

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// pseudonyms gives strings others of the same shape in their place: equal ones
// the same, told by a key that is not in the result.
type pseudonyms struct {
	key []byte
}

// stream gives keyed bytes for a text.
func (p *pseudonyms) stream(text string) func() byte {
	var block []byte
	var n uint32
	return func() byte {
		if len(block) == 0 {
			mac := hmac.New(sha256.New, p.key)
			_ = binary.Write(mac, binary.BigEndian, n) // a hash takes everything
			_, _ = mac.Write([]byte(text))
			block = mac.Sum(nil)
			n++
		}
		b := block[0]
		block = block[1:]
		return b
	}
}

// of gives the pseudonym of a whole value.
func (p *pseudonyms) of(text string) string {
	if at, ok := p.instant(text); ok {
		return at
	}
	if addr, err := netip.ParseAddr(text); err == nil {
		return p.address(addr)
	}
	return p.letters(text, text)
}

// letters replaces letters by letters and digits by digits; all else, and the
// 0x of a number, stays. What are hexadecimal digits stays one.
func (p *pseudonyms) letters(text, keyed string) string {
	next := p.stream(keyed)
	hex := hexadecimal(text)
	out := []rune(text)
	for i, r := range out {
		if hex && i == 1 && (r == 'x' || r == 'X') && out[0] == '0' {
			continue
		}
		switch b := rune(next()); {
		case r >= '0' && r <= '9':
			if i > 0 || r != '0' {
				out[i] = '0' + b%10
			}
		case hex && r >= 'a' && r <= 'f':
			out[i] = 'a' + b%6
		case hex && r >= 'A' && r <= 'F':
			out[i] = 'A' + b%6
		case r >= 'a' && r <= 'z':
			out[i] = 'a' + b%26
		case r >= 'A' && r <= 'Z':
			out[i] = 'A' + b%26
		case r > 127:
			out[i] = 'x'
		}
	}
	return string(out)
}

// hexadecimal tells whether a text is made of hexadecimal digits and of what
// parts them, as UUIDs and MAC addresses are.
func hexadecimal(text string) bool {
	digits := 0
	for i, r := range text {
		switch {
		case r >= '0' && r <= '9' || r >= 'a' && r <= 'f' || r >= 'A' && r <= 'F':
			digits++
		case r == '-' || r == ':' || r == ' ' || i == 1 && (r == 'x' || r == 'X'):
		default:
			return false
		}
	}
	return digits > 0
}

var instants = []string{time.RFC3339Nano, "2006-01-02T15:04:05-0700", "2006-01-02"}

// instant moves a time by a keyed span, the same for all: their order and what
// lies between them stay. Times that say that nothing is set stay as they are.
func (p *pseudonyms) instant(text string) (string, bool) {
	if len(text) < 10 || text[4] != '-' {
		return "", false
	}
	for _, form := range instants {
		at, err := time.Parse(form, text)
		if err != nil {
			continue
		}
		if at.Year() <= 1970 {
			return text, true
		}
		next := p.stream("the span of times")
		span := time.Duration(binary.BigEndian.Uint32([]byte{next(), next(), next(), next()})%(5*365*24*3600)) * time.Second
		if form == "2006-01-02" {
			span = span.Truncate(24 * time.Hour)
		}
		return at.Add(-span).Format(sameForm(text, form)), true
	}
	return "", false
}

// sameForm gives a time's form with as many digits of a second as a text has,
// and a zone in numbers where it has one.
func sameForm(text, form string) string {
	if form != time.RFC3339Nano {
		return form
	}
	form = "2006-01-02T15:04:05"
	if at := strings.IndexByte(text, '.'); at > 0 {
		digits := len(text) - at - 1
		if zone := strings.IndexAny(text[at:], "Z+-"); zone > 0 {
			digits = zone - 1
		}
		form += "." + strings.Repeat("0", digits)
	}
	if strings.HasSuffix(text, "Z") {
		return form + "Z07:00"
	}
	return form + "-07:00"
}

// address gives another address of the same family. Those that mean none or
// itself stay.
func (p *pseudonyms) address(addr netip.Addr) string {
	if addr.IsUnspecified() || addr == netip.IPv6Loopback() || addr == netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
		return addr.String()
	}
	next := p.stream(addr.String())
	if addr.Is4() {
		return "10." + strconv.Itoa(int(next())) + "." + strconv.Itoa(int(next())) + "." + strconv.Itoa(1+int(next())%254)
	}
	out := addr.As16()
	for i := 1; i < len(out); i++ {
		out[i] = next()
	}
	out[0] = 0xfd
	return netip.AddrFrom16(out).String()
}
