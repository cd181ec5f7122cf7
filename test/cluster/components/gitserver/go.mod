module github.com/bergctf/berg-operator/test/cluster/components/gitserver

go 1.26.0
