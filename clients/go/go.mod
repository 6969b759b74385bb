module kproxykit

go 1.24
