"""More traffic, ruder clients and worse moments than a server is planned for."""
