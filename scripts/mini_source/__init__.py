"""Where the packaged data set `mini` comes from: its questions, truths and attachments."""
