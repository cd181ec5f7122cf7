// Command proto generates Go from protobuf files without protoc: the compiler and both
// generators are Go modules that this module pins.
//
//	go run -C tools/proto . --root DIR FILE.proto...
//
// A FILE is relative to DIR, and what is generated is put into its folder.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// generators are tools of this module, by their names.
var generators = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	root := flag.String("root", "", "folder that the files are relative to, absolute")
	flag.Parse()
	if err := run(context.Background(), *root, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "proto: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, files []string) error {
	if !filepath.IsAbs(root) || len(files) == 0 {
		return errors.New("want --root with an absolute folder, and files below it")
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // comments become comments
	}
	compiled, err := compiler.Compile(ctx, files...)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      descriptors(compiled),
	}
	for _, generator := range generators {
		if err := generate(ctx, root, generator, request); err != nil {
			return fmt.Errorf("%s: %w", generator, err)
		}
	}
	return nil
}

// descriptors returns those of the files and of all that they import, each after its imports.
func descriptors(files linker.Files) (all []*descriptorpb.FileDescriptorProto) {
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		imports := file.Imports()
		for i := range imports.Len() {
			add(imports.Get(i).FileDescriptor)
		}
		all = append(all, protodesc.ToFileDescriptorProto(file))
	}
	for _, file := range files {
		add(file)
	}
	return all
}

func generate(ctx context.Context, root, generator string, request *pluginpb.CodeGeneratorRequest) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	var output bytes.Buffer
	command := exec.CommandContext(ctx, "go", "tool", generator)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), &output, os.Stderr
	if err := command.Run(); err != nil {
		return err
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(output.Bytes(), response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, file := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(root, file.GetName()), []byte(file.GetContent()), 0o600); err != nil {
			return err
		}
	}
	return nil
}
