package proc

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// maxFiles bounds the files of one message.
const maxFiles = 8

// SendFiles sends a text over a Unix socket, and with it the descriptors of files or sockets, which
// stay open here.
func SendFiles[F syscall.Conn](c *net.UnixConn, text string, files ...F) error {
	return withDescriptors(files, nil, func(descriptors []int) error {
		var rights []byte
		if len(descriptors) > 0 {
			rights = syscall.UnixRights(descriptors...)
		}
		_, _, err := c.WriteMsgUnix([]byte(text), rights, nil)
		return err
	})
}

// withDescriptors calls do with the descriptors of files. It does not ask a file for its
// descriptor, because that could make the file one that blocks.
func withDescriptors[F syscall.Conn](files []F, descriptors []int, do func([]int) error) error {
	if len(files) == 0 {
		return do(descriptors)
	}
	raw, err := files[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(descriptor uintptr) {
		inner = withDescriptors(files[1:], append(descriptors, int(descriptor)), do)
	})
	return errors.Join(err, inner)
}

// ReceiveFiles reads one message of [SendFiles]: a text of at most size bytes, and at most 8 files.
// Closing a file ends the reads and writes that wait for it. The caller closes the files, also
// those that come with an error.
func ReceiveFiles(c *net.UnixConn, size int) (text string, files []*os.File, err error) {
	data, rights := make([]byte, size), make([]byte, syscall.CmsgSpace(4*maxFiles))
	n, length, _, _, err := c.ReadMsgUnix(data, rights)
	if err != nil {
		return "", nil, err
	}
	messages, err := syscall.ParseSocketControlMessage(rights[:length])
	for _, m := range messages {
		descriptors, parseErr := syscall.ParseUnixRights(&m)
		err = errors.Join(err, parseErr)
		for _, descriptor := range descriptors {
			err = errors.Join(err, syscall.SetNonblock(descriptor, true))
			// A descriptor.
			files = append(files, os.NewFile(uintptr(descriptor), "received")) //nolint:gosec
		}
	}
	if n == 0 {
		err = errors.Join(err, io.ErrUnexpectedEOF)
	}
	return string(data[:n]), files, err
}
