module redbox.dev/bed/slowfs

go 1.24.0

require (
	github.com/hanwen/go-fuse/v2 v2.12.1
	golang.org/x/sys v0.28.0
)
