// Package recording reads and writes facts as they lie on disk: a folder with
// one folder a site, in it site.cue and one <source>.json a listing. Such a
// folder is what `muster snapshot` writes and what `muster dev --facts` and
// `muster explain --facts` read. Here a folder becomes devices with their facts
// as the reconciler would join them, and the judgement of one device by a
// bundle, without a database. The form of one listing is package
// sources/recorded's.
package recording
