package world

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Effect is one thing that was done to the fleet.
type Effect struct {
	At      time.Time `json:"at"`             // the world's time
	Face    string    `json:"face"`           // through which protocol: ironic, slurm, netbox, redfish, control, …; machine: what a machine itself went through; world: by itself
	Site    string    `json:"site,omitempty"` // "" where it is nobody's
	Op      string    `json:"op"`             // such as "reset ForceOff"
	Subject string    `json:"subject"`        // the machine's or thing's name
	Detail  string    `json:"detail,omitempty"`
}

// External tells whether somebody outside asked for it.
func (e *Effect) External() bool { return e.Face != FaceWorld }

// FaceWorld is the face of what happens by itself, FaceMachine of what a machine
// goes through whoever asked for it.
const (
	FaceWorld   = "world"
	FaceMachine = "machine"
)

// entry is one line of the journal: what was done, and the rows as they were
// afterwards.
type entry struct {
	Effects []Effect `json:"effects,omitempty"`
	Rows    []image  `json:"rows,omitempty"`
}

type image struct {
	Table string          `json:"table"`
	Key   string          `json:"key"`
	Row   json.RawMessage `json:"row"` // null: deleted
}

// journal is the file of entries, one JSON object a line.
type journal struct {
	file *os.File
}

const journalName = "journal.jsonl"

// openJournal reads what is there, telling each entry, and opens the file to be
// written on. A last line that was cut short was never answered for: it is taken
// off.
func openJournal(dir string, each func(*entry) error) (*journal, error) {
	path := filepath.Join(dir, journalName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	good, err := replay(file, each)
	if err == nil {
		err = file.Truncate(good)
	}
	if err == nil {
		_, err = file.Seek(good, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read %s: %w", path, err), file.Close())
	}
	return &journal{file: file}, nil
}

// replay gives the length of the whole lines.
func replay(file *os.File, each func(*entry) error) (good int64, err error) {
	reader := bufio.NewReaderSize(file, 1<<20)
	for line := 1; ; line++ {
		text, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return good, nil
		}
		if err != nil {
			return good, err
		}
		var e entry
		if err := json.Unmarshal(text, &e); err != nil {
			return good, fmt.Errorf("line %d: %w", line, err)
		}
		if err := each(&e); err != nil {
			return good, fmt.Errorf("line %d: %w", line, err)
		}
		good += int64(len(text))
	}
}

// add writes an entry, through to the disk if sync is set.
func (j *journal) add(e *entry, sync bool) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return err
	}
	if sync {
		return j.file.Sync()
	}
	return nil
}

func (j *journal) close() error { return j.file.Close() }
