"""What a client decides, apart from all I/O: stepped with the time in milliseconds, and told what happened."""
