/** Ordered maps that survive crashes. Start programs with {@code --enable-native-access=bristlecone}. */
module bristlecone {
    exports bristlecone;
}
