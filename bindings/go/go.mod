module bristlecone

go 1.24
