"""What serves ``build``: how a call is read, what operators belong to, what nobody needs."""
