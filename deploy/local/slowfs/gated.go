package main

import "github.com/hanwen/go-fuse/v2/fuse"

// gated sends each operation that a remote client would ask its server for through the gate, and adds the caching of
// misses. Let through unasked: what ends things (forget, release) and flush, which asks the gate only when there is
// something to write.
type gated struct {
	fuse.RawFileSystem
	gate     *gate
	settings *settings
}

func (g *gated) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	if status := g.gate.pass(cancel, header.Pid); !status.Ok() {
		return status
	}
	status := g.RawFileSystem.Lookup(cancel, header, name, out)
	if negative := g.settings.negative.get(); status == fuse.ENOENT && negative > 0 {
		*out = fuse.EntryOut{}
		out.SetEntryTimeout(negative)
		return fuse.OK
	}
	return status
}

func (g *gated) GetAttr(cancel <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.GetAttr(cancel, in, out)
}

func (g *gated) SetAttr(cancel <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.SetAttr(cancel, in, out)
}

// Statx would only add birth times; the kernel falls back to GetAttr.
func (g *gated) Statx(<-chan struct{}, *fuse.StatxIn, *fuse.StatxOut) fuse.Status {
	return fuse.ENOSYS
}

func (g *gated) Mknod(cancel <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Mknod(cancel, in, name, out)
}

func (g *gated) Mkdir(cancel <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Mkdir(cancel, in, name, out)
}

func (g *gated) Unlink(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	if status := g.gate.pass(cancel, header.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Unlink(cancel, header, name)
}

func (g *gated) Rmdir(cancel <-chan struct{}, header *fuse.InHeader, name string) fuse.Status {
	if status := g.gate.pass(cancel, header.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Rmdir(cancel, header, name)
}

func (g *gated) Rename(cancel <-chan struct{}, in *fuse.RenameIn, oldName, newName string) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Rename(cancel, in, oldName, newName)
}

func (g *gated) Link(cancel <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Link(cancel, in, name, out)
}

func (g *gated) Symlink(
	cancel <-chan struct{}, header *fuse.InHeader, target, name string, out *fuse.EntryOut,
) fuse.Status {
	if status := g.gate.pass(cancel, header.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Symlink(cancel, header, target, name, out)
}

func (g *gated) Readlink(cancel <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	if status := g.gate.pass(cancel, header.Pid); !status.Ok() {
		return nil, status
	}
	return g.RawFileSystem.Readlink(cancel, header)
}

func (g *gated) Create(cancel <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Create(cancel, in, name, out)
}

func (g *gated) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Open(cancel, in, out)
}

func (g *gated) Read(cancel <-chan struct{}, in *fuse.ReadIn, buffer []byte) (fuse.ReadResult, fuse.Status) {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return nil, status
	}
	return g.RawFileSystem.Read(cancel, in, buffer)
}

func (g *gated) Write(cancel <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return 0, status
	}
	return g.RawFileSystem.Write(cancel, in, data)
}

// Writev makes the server fall back to Write, so that each write passes the gate once.
func (g *gated) Writev(<-chan struct{}, *fuse.WriteIn, [][]byte) (uint32, fuse.Status) {
	return 0, fuse.ENOSYS
}

func (g *gated) Lseek(cancel <-chan struct{}, in *fuse.LseekIn, out *fuse.LseekOut) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Lseek(cancel, in, out)
}

func (g *gated) Fsync(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.Fsync(cancel, in)
}

func (g *gated) OpenDir(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.OpenDir(cancel, in, out)
}

func (g *gated) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	if status := g.gate.pass(cancel, in.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.ReadDir(cancel, in, out)
}

func (g *gated) StatFs(cancel <-chan struct{}, header *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	if status := g.gate.pass(cancel, header.Pid); !status.Ok() {
		return status
	}
	return g.RawFileSystem.StatFs(cancel, header, out)
}
