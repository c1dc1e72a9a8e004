package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
)

// Times are nanoseconds of one monotonic clock of the recording process.
const (
	never = math.MaxInt64
	ms    = 1_000_000
	// The tolerance for leases: the server counts them in whole milliseconds of another clock.
	slack = ms
	// Longer stalls of the machine are marked as losses.
	stall = 500 * ms
)

// A record is one line of a history's file. README.md describes the fields.
type record struct {
	Record string `json:"record"`

	Format int      `json:"format"`
	Name   string   `json:"name"`
	Forged *forgery `json:"forged"`

	Process    int    `json:"process"`
	Operation  string `json:"operation"`
	Key        *int   `json:"key"`
	Kind       string `json:"kind"`
	Owner      uint64 `json:"owner"`
	Invoke     int64  `json:"invoke"`
	Complete   int64  `json:"complete"`
	Result     string `json:"result"`
	Token      int64  `json:"token"`
	Value      int64  `json:"value"`
	Permits    int    `json:"permits"`
	LeaseMs    int64  `json:"lease_ms"`
	NamedToken int64  `json:"named_token"`
	Tie        string `json:"tie"`
	Count      int64  `json:"count"`
	Condition  string `json:"condition"`
	Once       bool   `json:"once"`
	All        bool   `json:"all"`

	Holders [][2]uint64 `json:"holders"`

	Fault           string `json:"fault"`
	From            int64  `json:"from"`
	To              int64  `json:"to"`
	LosesHolds      bool   `json:"loses_holds"`
	RestoresHolds   bool   `json:"restores_holds"`
	LengthensLeases bool   `json:"lengthens_leases"`
}

// An op is an operation on one key, with what is known of its owner's other operations on that key. The owner is used
// for one series of requests and never again.
type op struct {
	record
	key   int
	lease int64
	loss  *losses

	// The first request whose result is unknown, and the first acquire among them. Since the latter the owner may hold.
	unsureSince, silentSince int64
	// Since then a request whose result is unknown may have ended the owner's hold.
	doubt int64
	// Since then a hold that this acquire binds to its connection may have ended with it.
	bondEnd int64
	// The next lower token that was granted at the key, and whether the owner was granted this one before.
	lower    int64
	isRepeat bool
	// Another owner was granted the same token at the key.
	isShared bool
	// The invocation of the owner's first grant, and the completion of its last operation.
	firstGrant, last int64
	// The first invocation of a release that ended a hold.
	release int64
	// Since then an owner may read the key without a reply: its request for READ has no known result.
	mayBeRead int64
	// The first invocation that was granted this token.
	phase int64
}

// A history is what one file holds.
type history struct {
	name     string
	forged   *forgery
	records  []record
	ops      map[int][]*op
	readings []*record
}

func readHistory(path string) (*history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var records []record
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var r record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, len(records)+1, err)
		}
		records = append(records, r)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(records) == 0 || records[0].Record != "run" || records[0].Format != 2 {
		return nil, fmt.Errorf("%s: no history of format 2", path)
	}
	return newHistory(records), nil
}

func newHistory(records []record) *history {
	h := &history{ops: map[int][]*op{}, records: records}
	var windows []*record
	for i := range records {
		r := &records[i]
		switch r.Record {
		case "run":
			h.name, h.forged = r.Name, r.Forged
		case "loss":
			windows = append(windows, r)
		case "reading":
			h.readings = append(h.readings, r)
		case "operation":
			o := &op{record: *r, key: *r.Key, lease: r.LeaseMs * ms}
			h.ops[o.key] = append(h.ops[o.key], o)
		}
	}
	for key, ops := range h.ops {
		loss := lossesOf(windows, key)
		owners := map[uint64][]*op{}
		for _, o := range ops {
			o.loss = loss
			owners[o.Owner] = append(owners[o.Owner], o)
		}
		for _, series := range owners {
			annotate(series)
		}
		unknownReads(ops)
		phases(ops)
		rank(ops)
	}
	return h
}

// annotate adds to each operation what the owner's other operations on the key tell.
func annotate(series []*op) {
	sort.SliceStable(series, func(i, j int) bool { return series[i].Invoke < series[j].Invoke })
	unsure, silent, doubt, first := int64(never), int64(never), int64(never), int64(never)
	release, last := int64(never), int64(0)
	for _, o := range series {
		last = max(last, o.Complete)
		switch {
		case o.Operation == "acquire" && o.Result == "granted":
			first = min(first, o.Invoke)
		case o.Operation == "release" && o.Result == "number" && o.Value != 0:
			release = min(release, o.Invoke)
		case o.Result != "unknown" || o.Operation == "close":
		case o.Operation == "acquire":
			unsure, silent = min(unsure, o.Invoke), min(silent, o.Invoke)
			if o.Tie == "session" {
				// It may bind the hold to the connection that is lost.
				doubt = min(doubt, o.Invoke)
			}
		case o.Operation == "renew":
			unsure, doubt = min(unsure, o.Invoke), min(doubt, o.Invoke+o.lease-slack)
		default:
			unsure, doubt = min(unsure, o.Invoke), min(doubt, o.Invoke)
		}
	}
	tokens := map[int64]bool{}
	for i, o := range series {
		if o.Result == "granted" {
			o.isRepeat = tokens[o.Token]
			tokens[o.Token] = true
		}
		o.unsureSince, o.silentSince, o.doubt, o.firstGrant = unsure, silent, doubt, first
		o.release, o.last = release, last
		o.bondEnd = o.loss.any.next(o.Invoke)
		alive := o.Invoke
		for _, later := range series[i+1:] {
			if later.Result == "unknown" {
				// The connection may have ended any time since the last request that was answered.
				o.bondEnd = min(o.bondEnd, alive)
				break
			}
			if later.Operation == "close" {
				o.bondEnd = min(o.bondEnd, later.Invoke)
				break
			}
			alive = max(alive, later.Invoke)
		}
	}
}

// unknownReads adds to each operation the first invocation of a request for READ on the key whose result is not known.
func unknownReads(ops []*op) {
	since := int64(never)
	for _, o := range ops {
		if o.Operation == "acquire" && o.Kind == "read" && o.Result == "unknown" {
			since = min(since, o.Invoke)
		}
	}
	for _, o := range ops {
		o.mayBeRead = since
	}
}

// phases adds to each grant the first invocation that was granted the same token, and whether another owner was.
func phases(ops []*op) {
	since, owner, isShared := map[int64]int64{}, map[int64]uint64{}, map[int64]bool{}
	for _, o := range ops {
		if o.Result != "granted" {
			continue
		}
		first, ok := since[o.Token]
		if !ok || o.Invoke < first {
			since[o.Token] = o.Invoke
		}
		isShared[o.Token] = isShared[o.Token] || ok && owner[o.Token] != o.Owner
		owner[o.Token] = o.Owner
	}
	for _, o := range ops {
		o.phase, o.isShared = since[o.Token], isShared[o.Token]
	}
}

// rank finds the next lower token of each grant.
func rank(ops []*op) {
	var grants []*op
	for _, o := range ops {
		if o.Operation == "acquire" && o.Result == "granted" {
			grants = append(grants, o)
		}
	}
	sort.SliceStable(grants, func(i, j int) bool { return grants[i].Token < grants[j].Token })
	for i, o := range grants {
		switch {
		case i == 0:
		case grants[i-1].Token == o.Token:
			o.lower = grants[i-1].lower
		default:
			o.lower = grants[i-1].Token
		}
	}
}

// isNext tells whether a new hold may have this token after that one. Tokens rise, so a grant under a token between the
// two could not follow. An earlier state of the data that returned has the earlier holds with their tokens.
func (o *op) isNext(highest int64) bool {
	return o.Token > highest && o.lower <= highest || o.isRepeat && o.mayHoldUnknown()
}

// mayHoldUnknown tells whether the owner may hold although no reply said so: an acquire has no known result, or a
// server took over that may have an earlier state of the data.
func (o *op) mayHoldUnknown() bool {
	return o.silentSince <= o.Complete || o.loss.restores.meets(o.firstGrant, o.Complete)
}

// isMoot tells whether the operation says nothing to the models. An operation without a known result is in the
// annotations of the owner's others. A refusal is never wrong: see README.md.
func (o *op) isMoot() bool {
	if o.Result == "unknown" || o.Result == "error" || o.Operation == "close" {
		return true
	}
	return o.Operation == "acquire" && o.Result == "nil"
}

// The losses of a key that are expected.
type losses struct {
	// Holds may be lost; may be lost or return; leases may be longer; any fault.
	loses, restores, lengthens, any windows
	// Keys are deleted; a primary and a replica change places.
	takes, moves windows
}

type windows []window

type window struct{ from, to int64 }

func lossesOf(all []*record, key int) *losses {
	l := &losses{}
	for _, r := range all {
		if r.Key != nil && *r.Key != key {
			continue
		}
		w := window{r.From, r.To}
		l.any = append(l.any, w)
		if r.LosesHolds {
			l.loses = append(l.loses, w)
		}
		if r.RestoresHolds {
			l.restores = append(l.restores, w)
		}
		if r.LengthensLeases {
			l.lengthens = append(l.lengthens, w)
		}
		switch r.Fault {
		case "Taken":
			l.takes = append(l.takes, w)
		case "Handover", "Failover":
			l.moves = append(l.moves, w)
		}
	}
	return l
}

// next is the first moment since t that lies in a window.
func (w windows) next(t int64) int64 {
	first := int64(never)
	for _, each := range w {
		if each.to >= t {
			first = min(first, max(each.from, t))
		}
	}
	return first
}

func (w windows) meets(from, to int64) bool { return from <= to && w.next(from) <= to }
