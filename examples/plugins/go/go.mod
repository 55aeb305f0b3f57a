module length

go 1.19
