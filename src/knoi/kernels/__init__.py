"""THE EXACT k(x, z): what feature maps approximate and are judged against."""
